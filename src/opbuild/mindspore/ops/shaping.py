"""Shapes: operators that move elements and compute nothing."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.frontend.cell import current, location
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, TensorShapeError, axis_in, one_of
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.execution import cast as _cast
from opbuild.mindspore.execution import emit, emit_many
from opbuild.mindspore.ops.declaration import formula, need_tensor, of_tensor, spelled
from opbuild.mindspore.promotion import promote
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "broadcast_to", "cast", "cat", "chunk", "concat", "dtype", "expand", "expand_dims", "flatten", "flip", "hstack",
    "identity", "meshgrid", "moveaxis", "movedim", "narrow", "pad", "permute", "rank", "ravel", "repeat_interleave",
    "reshape", "roll", "shape", "size", "slice", "split", "squeeze", "stack", "swapaxes", "tile", "transpose", "tril",
    "triu", "unbind", "unsqueeze", "unstack",
]  # fmt: skip

ravel = formula("ravel", "all elements as a vector", of_tensor(lambda input: reshaped(input, (input.size,))))
hstack = formula("hstack", "tensors joined along axis 1; vectors along axis 0",
                 lambda tensors: concat(tensors, 0 if tensors[0].ndim < 2 else 1))  # fmt: skip
unstack = formula(
    "unstack", "the slices of a tensor along ``axis``",
    of_tensor(lambda input_x, axis=0: tuple(squeeze(item, axis) for item in split(input_x, 1, axis))),
)  # fmt: skip
shape = formula("shape", "the dimensions of a tensor as a tuple", of_tensor(lambda input_x: input_x.shape))
size = formula("size", "the number of elements", of_tensor(lambda input_x: input_x.size))
dtype = formula("dtype", "the element type", of_tensor(lambda input_x: input_x.dtype))
rank = formula("rank", "the number of dimensions", of_tensor(lambda input_x: input_x.ndim))
identity = formula("identity", "the tensor", of_tensor(lambda x: x))
tril = formula(
    "tril", "the matrix with 0 above a diagonal",
    of_tensor(lambda input, diagonal=0: emit("Trilu", input, np.asarray(diagonal, np.int64), upper=0)),
)  # fmt: skip
triu = formula(
    "triu", "the matrix with 0 below a diagonal",
    of_tensor(lambda input, diagonal=0: emit("Trilu", input, np.asarray(diagonal, np.int64), upper=1)),
)  # fmt: skip


def ints(value: Any, what: str) -> tuple[int, ...]:
    """Return a tuple of integers from one, from a sequence, or from a tensor that holds data.

    Raises:
        ArgumentTypeError: If it is none of these.
    """
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return (int(value),)
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = [item.item() if isinstance(item, (Tensor, np.integer)) else item for item in value]
        if all(isinstance(item, int) for item in items):
            return tuple(items)
    raise ArgumentTypeError(f"{what} is {value!r}{location()}", "give integers")


def _vector(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def reshaped(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the elements in a shape without -1; without a copy where the data are at hand."""
    if tensor.shape == shape:
        return tensor
    if current() is None:
        return Tensor.of(tensor.asnumpy().reshape(shape))
    return emit("Reshape", tensor, _vector(*shape), allowzero=1)


def reshape(input: Any, shape: Any) -> Tensor:
    """Return the elements in another shape; one extent may be -1.

    Raises:
        TensorShapeError: If the numbers of elements differ.
    """
    tensor, wanted = need_tensor(input, "reshape"), list(ints(shape, "the shape of reshape"))
    if wanted.count(-1) == 1:
        rest = prod(extent for extent in wanted if extent != -1)
        if rest and tensor.size % rest == 0:
            wanted[wanted.index(-1)] = tensor.size // rest
    if prod(wanted) != tensor.size or min(wanted, default=0) < 0:
        raise TensorShapeError(f"reshape of {tensor.shape} to {shape}{location()}", f"there are {tensor.size} elements")
    return reshaped(tensor, tuple(wanted))


def transpose(input: Any, dims: Any) -> Tensor:
    """Return the tensor with its axes in the order ``dims``."""
    tensor = need_tensor(input, "transpose")
    perm = tuple(axis_in(axis, tensor.ndim, "transpose") for axis in ints(dims, "the order of transpose"))
    if sorted(perm) != list(range(tensor.ndim)):
        raise ArgumentValueError(f"transpose of {tensor.ndim} axes by {dims}{location()}", "name each axis once")
    return tensor if perm == tuple(range(tensor.ndim)) else emit("Transpose", tensor, perm=perm)


permute = spelled(transpose, "permute", axis="dims")


def swapaxes(input: Any, axis0: int, axis1: int) -> Tensor:
    """Return the tensor with two axes exchanged."""
    tensor = need_tensor(input, "swapaxes")
    perm = list(range(tensor.ndim))
    first, second = axis_in(axis0, tensor.ndim, "swapaxes"), axis_in(axis1, tensor.ndim, "swapaxes")
    perm[first], perm[second] = perm[second], perm[first]
    return transpose(tensor, perm)


def movedim(x: Any, source: Any, destination: Any) -> Tensor:
    """Return the tensor with axes moved from ``source`` to ``destination``."""
    tensor = need_tensor(x, "movedim")
    from_ = [axis_in(axis, tensor.ndim, "movedim") for axis in ints(source, "source")]
    to = [axis_in(axis, tensor.ndim, "movedim") for axis in ints(destination, "destination")]
    order = [axis for axis in range(tensor.ndim) if axis not in from_]
    for place, axis in sorted(zip(to, from_, strict=True)):
        order.insert(place, axis)
    return transpose(tensor, order)


moveaxis = movedim


def squeeze(input: Any, axis: Any = None) -> Tensor:
    """Return the tensor without axes of extent 1: all of them, or those named."""
    tensor = need_tensor(input, "squeeze")
    if axis is None or axis == ():
        gone = [index for index, extent in enumerate(tensor.shape) if extent == 1]
    else:
        gone = [axis_in(item, tensor.ndim, "squeeze") for item in ints(axis, "the axis of squeeze")]
    if any(tensor.shape[index] != 1 for index in gone):
        raise ArgumentValueError(f"squeeze of axis {axis} of shape {tensor.shape}{location()}", "its size must be 1")
    return reshaped(tensor, tuple(extent for index, extent in enumerate(tensor.shape) if index not in gone))


def expand_dims(input_x: Any, axis: int) -> Tensor:
    """Return the tensor with a new axis of extent 1 at ``axis``."""
    tensor = need_tensor(input_x, "expand_dims")
    place = axis_in(axis, tensor.ndim + 1, "expand_dims")
    return reshaped(tensor, (*tensor.shape[:place], 1, *tensor.shape[place:]))


unsqueeze = spelled(expand_dims, "unsqueeze", input="input_x", dim="axis")


def flatten(input: Any, order: str = "C", *, start_dim: int = 1, end_dim: int = -1) -> Tensor:
    """Return the tensor with the axes from ``start_dim`` to ``end_dim`` as one."""
    tensor = need_tensor(input, "flatten")
    one_of(order, ("C", "F"), "order")
    if order == "F":
        tensor = transpose(tensor, tuple(reversed(range(tensor.ndim))))
    if tensor.ndim < 2:
        return reshaped(tensor, (tensor.size,))
    start, end = axis_in(start_dim, tensor.ndim, "flatten"), axis_in(end_dim, tensor.ndim, "flatten")
    if start > end:
        raise ArgumentValueError(
            f"flatten from axis {start_dim} to {end_dim}", "the first must not be after the second"
        )
    return reshaped(tensor, (*tensor.shape[:start], prod(tensor.shape[start : end + 1]), *tensor.shape[end + 1 :]))


def concat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Return tensors joined along ``axis``, in their common element type."""
    if isinstance(tensors, Tensor) or not tensors:
        raise ArgumentTypeError("concat was given no sequence of tensors", "give a tuple or list of them")
    items = [need_tensor(item, "concat") for item in tensors]
    common = functools.reduce(promote, (item.type.dtype for item in items))
    place = axis_in(axis, items[0].ndim, "concat")
    return emit("Concat", *(_cast(item, common) for item in items), axis=place)


cat = concat


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Return tensors of one shape joined along a new axis."""
    place = axis_in(axis, tensors[0].ndim + 1, "stack")
    return concat([expand_dims(item, place) for item in tensors], place)


def split(tensor: Any, split_size_or_sections: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """Return parts of a tensor along ``axis``: of one extent (the last may be smaller), or of the extents listed."""
    tensor = need_tensor(tensor, "split")
    place = axis_in(axis, tensor.ndim, "split")
    extent = tensor.shape[place]
    if isinstance(split_size_or_sections, int):
        size = split_size_or_sections
        if size <= 0:
            raise ArgumentValueError(f"split into parts of {size}{location()}", "give a positive integer")
        sizes = tuple(min(size, extent - start) for start in range(0, extent, size))
    else:
        sizes = ints(split_size_or_sections, "the sections of split")
    if sum(sizes) != extent:
        raise ArgumentValueError(f"split of size {extent} into {sizes}{location()}", "the parts must make up the whole")
    if len(sizes) == 1:
        return (tensor,)
    return emit_many("Split", (tensor, _vector(*sizes)), {"axis": place}, outputs=len(sizes))


def chunk(input: Any, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the tensor in at most ``chunks`` parts of one extent along ``axis``."""
    tensor = need_tensor(input, "chunk")
    extent = tensor.shape[axis_in(axis, tensor.ndim, "chunk")]
    return split(tensor, max(-(-extent // chunks), 1), axis)


unbind = unstack


def tile(input: Any, dims: Any) -> Tensor:
    """Return the tensor repeated ``dims`` times along its axes."""
    tensor, repeats = need_tensor(input, "tile"), ints(dims, "the repeats of tile")
    if len(repeats) > tensor.ndim:
        tensor = reshaped(tensor, (1,) * (len(repeats) - tensor.ndim) + tensor.shape)
    repeats = (1,) * (tensor.ndim - len(repeats)) + repeats
    return emit("Tile", tensor, _vector(*repeats))


def repeat_interleave(input: Any, repeats: int, axis: int | None = None) -> Tensor:
    """Return the tensor with each slice along ``axis`` ``repeats`` times."""
    tensor = need_tensor(input, "repeat_interleave")
    tensor, place = (ravel(tensor), 0) if axis is None else (tensor, axis_in(axis, tensor.ndim, "repeat_interleave"))
    wide = expand_dims(tensor, place + 1)
    shape = (*tensor.shape[: place + 1], repeats, *tensor.shape[place + 1 :])
    final = (*tensor.shape[:place], tensor.shape[place] * repeats, *tensor.shape[place + 1 :])
    return reshaped(broadcast_to(wide, shape), final)


def broadcast_to(input: Any, shape: Any) -> Tensor:
    """Return the tensor repeated to ``shape``; -1 keeps an extent."""
    tensor, wanted = need_tensor(input, "broadcast_to"), list(ints(shape, "the shape of broadcast_to"))
    shift = len(wanted) - tensor.ndim
    if shift < 0:
        raise TensorShapeError(f"broadcast of {tensor.shape} to {shape}{location()}", "give no fewer dimensions")
    wanted = [tensor.shape[i - shift] if extent == -1 and i >= shift else extent for i, extent in enumerate(wanted)]
    return tensor if tuple(wanted) == tensor.shape else emit("Expand", tensor, _vector(*wanted))


expand = spelled(broadcast_to, "expand", input_x="input", size="shape")


def pad(input_x: Any, padding: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """Return the tensor with elements added around it.

    Args:
        input_x: A tensor.
        padding: Pairs (before, after), for the last axis first.
        mode: ``constant``, ``reflect``, ``replicate`` or ``circular``.
        value: What ``constant`` adds; None is 0.
    """
    tensor, amounts = need_tensor(input_x, "pad"), ints(padding, "padding")
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    one_of(mode, tuple(modes), "the mode of pad")
    if len(amounts) % 2 or len(amounts) > 2 * tensor.ndim:
        raise ArgumentValueError(
            f"pad of {tensor.ndim} axes by {padding}{location()}", "give a pair for each axis, the last first"
        )
    if not any(amounts):
        return tensor
    before, after = [0] * tensor.ndim, [0] * tensor.ndim
    for index in range(len(amounts) // 2):
        before[-1 - index], after[-1 - index] = amounts[2 * index], amounts[2 * index + 1]
    fill = np.asarray(0 if value is None else value, tensor.type.dtype) if mode == "constant" else None
    return emit("Pad", tensor, _vector(*before, *after), *([] if fill is None else [fill]), mode=modes[mode])


def flip(input: Any, dims: Any) -> Tensor:
    """Return the tensor with the order of elements along ``dims`` reversed."""
    tensor = need_tensor(input, "flip")
    axes = [axis_in(axis, tensor.ndim, "flip") for axis in ints(dims, "the axes of flip")]
    least = -(2**31)
    return cut(tensor, [-1] * len(axes), [least] * len(axes), axes, [-1] * len(axes))


def roll(input: Any, shifts: Any, dims: Any = None) -> Tensor:
    """Return the tensor with elements moved around by ``shifts`` along ``dims``."""
    tensor = need_tensor(input, "roll")
    if dims is None:
        return reshaped(roll(ravel(tensor), shifts, 0), tensor.shape)
    for shift, axis in zip(ints(shifts, "shifts"), ints(dims, "dims"), strict=True):
        extent = tensor.shape[axis_in(axis, tensor.ndim, "roll")]
        moved = shift % extent if extent else 0
        if moved:
            first, second = split(tensor, (extent - moved, moved), axis)
            tensor = concat((second, first), axis)
    return tensor


def cut(
    tensor: Tensor, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> Tensor:
    """Apply ONNX's Slice."""
    return emit("Slice", tensor, _vector(*starts), _vector(*ends), _vector(*axes), _vector(*steps))


def slice(input_x: Any, begin: Any, size: Any) -> Tensor:
    """Return ``size`` elements from ``begin`` along each axis; a size of -1 takes the rest."""
    tensor, first, sizes = need_tensor(input_x, "slice"), ints(begin, "begin"), ints(size, "size")
    ends = [
        tensor.shape[i] if extent == -1 else start + extent
        for i, (start, extent) in enumerate(zip(first, sizes, strict=True))
    ]
    if any(end > extent for end, extent in zip(ends, tensor.shape, strict=False)):
        raise ArgumentValueError(
            f"slice of {tensor.shape} from {first} of size {sizes}{location()}", "it goes beyond the tensor"
        )
    axes = list(range(len(first)))
    return cut(tensor, first, ends, axes, [1] * len(axes))


def narrow(input: Any, axis: int, start: int, length: int) -> Tensor:
    """Return ``length`` elements from ``start`` along ``axis``."""
    tensor = need_tensor(input, "narrow")
    place = axis_in(axis, tensor.ndim, "narrow")
    if start < 0 or start + length > tensor.shape[place]:
        raise ArgumentValueError(
            f"narrow of {tensor.shape} to {length} from {start}{location()}", "it goes beyond the tensor"
        )
    return cut(tensor, [start], [start + length], [place], [1])


def cast(input: Any, dtype: Any) -> Tensor:
    """Return the tensor in another element type."""
    tensor = Tensor(input) if isinstance(input, (int, float)) else need_tensor(input, "cast")
    return _cast(tensor, to_type(dtype).name)


def meshgrid(*inputs: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Return the coordinates of a grid from one vector for each axis."""
    one_of(indexing, ("xy", "ij"), "indexing")
    vectors = [need_tensor(item, "meshgrid") for item in inputs]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(order) > 1:
        order[0], order[1] = 1, 0
    full = [vectors[index].size for index in order]
    grids = []
    for index, vector in enumerate(vectors):
        place = order.index(index)
        lined = reshaped(vector, tuple(vector.size if axis == place else 1 for axis in range(len(full))))
        grids.append(broadcast_to(lined, full))
    return tuple(grids)
