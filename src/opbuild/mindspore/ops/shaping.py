"""Shapes: operators that move elements and compute nothing; those that choose by indices; tensors that hold data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.frontend.cell import current
from opbuild.graph.types import Array
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, TensorShapeError, axis_in, one_of
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.execution import cast as _cast
from opbuild.mindspore.execution import emit, emit_many, promote
from opbuild.mindspore.ops.declaration import formula, need_tensor, of_tensor, spelled
from opbuild.mindspore.tensor import Tensor

ravel = formula("all elements as a vector", of_tensor(lambda input: reshaped(input, (input.size,))))
hstack = formula("tensors joined along axis 1; vectors along axis 0",
    lambda tensors: concat(tensors, 0 if tensors[0].ndim < 2 else 1))  # fmt: skip
unstack = formula("the slices of a tensor along ``axis``",
    of_tensor(lambda input_x, axis=0: tuple(squeeze(item, axis) for item in split(input_x, 1, axis))))  # fmt: skip
shape = formula("the dimensions of a tensor as a tuple", of_tensor(lambda input_x: input_x.shape))
size = formula("the number of elements", of_tensor(lambda input_x: input_x.size))
dtype = formula("the element type", of_tensor(lambda input_x: input_x.dtype))
rank = formula("the number of dimensions", of_tensor(lambda input_x: input_x.ndim))
identity = formula("the tensor", of_tensor(lambda x: x))
tril = formula("the matrix with 0 above a diagonal",
    of_tensor(lambda input, diagonal=0: emit("Trilu", input, np.asarray(diagonal, np.int64), upper=0)))  # fmt: skip
triu = formula("the matrix with 0 below a diagonal",
    of_tensor(lambda input, diagonal=0: emit("Trilu", input, np.asarray(diagonal, np.int64), upper=1)))  # fmt: skip


def ints(value: Any, what: str) -> tuple[int, ...]:
    """Return a tuple of integers from one, from a sequence, or from a tensor that holds data; refuse anything else."""
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return (int(value),)
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = [item.item() if isinstance(item, (Tensor, np.integer)) else item for item in value]
        if all(isinstance(item, int) for item in items):
            return tuple(items)
    raise ArgumentTypeError(f"{what} is {value!r}", "give integers")


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
    """Return the elements in another shape; one extent may be -1."""
    tensor, wanted = need_tensor(input, "reshape"), list(ints(shape, "the shape of reshape"))
    if wanted.count(-1) == 1:
        rest = prod(extent for extent in wanted if extent != -1)
        if rest and tensor.size % rest == 0:
            wanted[wanted.index(-1)] = tensor.size // rest
    if prod(wanted) != tensor.size or min(wanted, default=0) < 0:
        raise TensorShapeError(f"reshape of {tensor.shape} to {shape}", f"there are {tensor.size} elements")
    return reshaped(tensor, tuple(wanted))


def transpose(input: Any, dims: Any) -> Tensor:
    """Return the tensor with its axes in the order ``dims``."""
    tensor = need_tensor(input, "transpose")
    perm = tuple(axis_in(axis, tensor.ndim, "transpose") for axis in ints(dims, "the order of transpose"))
    if sorted(perm) != list(range(tensor.ndim)):
        raise ArgumentValueError(f"transpose of {tensor.ndim} axes by {dims}", "name each axis once")
    return tensor if perm == tuple(range(tensor.ndim)) else emit("Transpose", tensor, perm=perm)


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


def squeeze(input: Any, axis: Any = None) -> Tensor:
    """Return the tensor without axes of extent 1: all of them, or those named."""
    tensor = need_tensor(input, "squeeze")
    if axis is None or axis == ():
        gone = [index for index, extent in enumerate(tensor.shape) if extent == 1]
    else:
        gone = [axis_in(item, tensor.ndim, "squeeze") for item in ints(axis, "the axis of squeeze")]
    if any(tensor.shape[index] != 1 for index in gone):
        raise ArgumentValueError(f"squeeze of axis {axis} of shape {tensor.shape}", "its size must be 1")
    return reshaped(tensor, tuple(extent for index, extent in enumerate(tensor.shape) if index not in gone))


def expand_dims(input_x: Any, axis: int) -> Tensor:
    """Return the tensor with a new axis of extent 1 at ``axis``."""
    tensor = need_tensor(input_x, "expand_dims")
    place = axis_in(axis, tensor.ndim + 1, "expand_dims")
    return reshaped(tensor, (*tensor.shape[:place], 1, *tensor.shape[place:]))


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
            raise ArgumentValueError(f"split into parts of {size}", "give a positive integer")
        sizes = tuple(min(size, extent - start) for start in range(0, extent, size))
    else:
        sizes = ints(split_size_or_sections, "the sections of split")
    if sum(sizes) != extent:
        raise ArgumentValueError(f"split of size {extent} into {sizes}", "the parts must make up the whole")
    if len(sizes) == 1:
        return (tensor,)
    return emit_many("Split", (tensor, _vector(*sizes)), {"axis": place}, outputs=len(sizes))


def chunk(input: Any, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the tensor in at most ``chunks`` parts of one extent along ``axis``."""
    tensor = need_tensor(input, "chunk")
    extent = tensor.shape[axis_in(axis, tensor.ndim, "chunk")]
    return split(tensor, max(-(-extent // chunks), 1), axis)


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
        raise TensorShapeError(f"broadcast of {tensor.shape} to {shape}", "give no fewer dimensions")
    wanted = [tensor.shape[i - shift] if extent == -1 and i >= shift else extent for i, extent in enumerate(wanted)]
    return tensor if tuple(wanted) == tensor.shape else emit("Expand", tensor, _vector(*wanted))


def pad(input_x: Any, padding: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """Return the tensor with elements added around it.

    ``padding`` has pairs (before, after), for the last axis first; ``mode`` is ``constant``, which adds ``value``,
    ``reflect``, ``replicate`` or ``circular``.
    """
    tensor, amounts = need_tensor(input_x, "pad"), ints(padding, "padding")
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    one_of(mode, tuple(modes), "the mode of pad")
    if len(amounts) % 2 or len(amounts) > 2 * tensor.ndim:
        raise ArgumentValueError(f"pad of {tensor.ndim} axes by {padding}", "give a pair for each axis, the last first")
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
        raise ArgumentValueError(f"slice of {tensor.shape} from {first} of size {sizes}", "it goes beyond the tensor")
    axes = list(range(len(first)))
    return cut(tensor, first, ends, axes, [1] * len(axes))


def narrow(input: Any, axis: int, start: int, length: int) -> Tensor:
    """Return ``length`` elements from ``start`` along ``axis``."""
    tensor = need_tensor(input, "narrow")
    place = axis_in(axis, tensor.ndim, "narrow")
    if start < 0 or start + length > tensor.shape[place]:
        raise ArgumentValueError(f"narrow of {tensor.shape} to {length} from {start}", "it goes beyond the tensor")
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


def _indices(value: Any, name: str) -> Tensor:
    tensor = Tensor(value) if isinstance(value, (int, list, tuple)) else need_tensor(value, name)
    return tensor if tensor.type.dtype in ("int32", "int64") else _cast(tensor, "int64")


def gather(input_params: Any, input_indices: Any, axis: int, batch_dims: int = 0) -> Tensor:
    """Return the slices of ``input_params`` along ``axis`` that ``input_indices`` names."""
    if batch_dims != 0:
        raise ArgumentValueError(f"gather was given batch_dims={batch_dims}", "use gather_elements")
    tensor = need_tensor(input_params, "gather")
    axis = axis.item() if isinstance(axis, Tensor) else axis
    return emit("Gather", tensor, _indices(input_indices, "gather"), axis=axis_in(axis, tensor.ndim, "gather"))


def gather_elements(input: Any, dim: int, index: Any) -> Tensor:
    """Return, for each element of ``index``, the element at its place but at that index along ``dim``."""
    tensor = need_tensor(input, "gather_elements")
    axis = axis_in(dim, tensor.ndim, "gather_elements")
    return emit("GatherElements", tensor, _indices(index, "gather_elements"), axis=axis)


def scatter_nd(indices: Any, updates: Any, shape: Any) -> Tensor:
    """Return zeros of ``shape`` with ``updates`` added at ``indices``."""
    values = need_tensor(updates, "scatter_nd")
    zeros = np.zeros(ints(shape, "the shape of scatter_nd"), values.type.dtype)
    return emit("ScatterND", zeros, _cast(_indices(indices, "scatter_nd"), "int64"), values, reduction="add")


def tensor_scatter_update(input_x: Any, indices: Any, updates: Any) -> Tensor:
    """Return the tensor with ``updates`` at ``indices``."""
    tensor = need_tensor(input_x, "tensor_scatter_update")
    places = _cast(_indices(indices, "tensor_scatter_update"), "int64")
    return emit("ScatterND", tensor, places, need_tensor(updates, "tensor_scatter_update"))


def one_hot(indices: Any, depth: int, on_value: Any = 1, off_value: Any = 0, axis: int = -1) -> Tensor:
    """Return ``off_value``, and ``on_value`` at each index along a new axis of extent ``depth``."""
    places = _indices(indices, "one_hot")
    values = np.array([_number(off_value), _number(on_value)])
    typed = next((item for item in (on_value, off_value) if isinstance(item, Tensor)), None)
    dtype = typed.type.dtype if typed is not None else "float32" if values.dtype.kind == "f" else "int64"
    return emit("OneHot", places, np.asarray(depth, np.int64), values.astype(dtype), axis=axis)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


def embedding(input: Any, weight: Any, padding_idx: int | None = None) -> Tensor:
    """Return the rows of ``weight`` that ``input`` names; ``padding_idx`` matters only to training."""
    ids, table = _indices(input, "embedding"), need_tensor(weight, "embedding")
    rows = emit("Gather", table, ids, axis=0)
    return reshaped(rows, (*ids.shape, table.shape[1]))


def _name(dtype: Any, default: str = "float32") -> str:
    return default if dtype is None else to_type(dtype).name


def full(size: Any, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """Return one number in every element; integers give int64, floats float32 by default."""
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    return Tensor.of(np.full(ints(size, "the shape of full"), value, _name(dtype, to_type(type(value)).name)))


def arange(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Any = None) -> Tensor:
    """Return numbers from ``start`` to below ``end``; int64, or float32 if any is a float."""
    start, end = (0, start) if end is None else (start, end)
    floats = any(isinstance(item, float) for item in (start, end, step))
    return Tensor.of(np.arange(start, end, step).astype(_name(dtype, "float32" if floats else "int64")))


def linspace(start: Any, end: Any, steps: int) -> Tensor:
    """Return ``steps`` numbers (float32) from ``start`` to ``end``, both included."""
    first, last = (item.item() if isinstance(item, Tensor) else item for item in (start, end))
    return Tensor.of(np.linspace(first, last, steps).astype(np.float32))


def tuple_to_array(input_x: Any) -> Tensor:
    """Return a tensor of the numbers in a tuple."""
    return Tensor(np.array(input_x, np.float32 if any(isinstance(item, float) for item in input_x) else np.int32))


def _window(function: Any, length: Any, periodic: bool, dtype: Any) -> Tensor:
    count = int(length)
    values: Array = function(count + 1)[:-1] if periodic and count > 1 else function(count)
    return Tensor.of(np.ascontiguousarray(values.astype(_name(dtype))))


def _window_of(values: Any, what: str, usual: Any = np.float32) -> Callable[..., Tensor]:
    return formula(
        what,
        lambda window_length, periodic=True, *, dtype=None: _window(values, window_length, periodic, dtype or usual),
    )


def hamming_window(
    window_length: Any, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None
) -> Tensor:
    """Return ``alpha - beta * cos`` of one turn."""

    def values(count: int) -> Array:
        turn = 2 * np.pi * np.arange(count) / max(count - 1, 1)
        return np.asarray(alpha - beta * np.cos(turn)) if count > 1 else np.ones(count)

    return _window(values, window_length, periodic, dtype)


def logspace(start: Any, end: Any, steps: int, base: float = 10, *, dtype: Any = None) -> Tensor:
    """Return ``base`` to the power of ``steps`` numbers from ``start`` to ``end``."""
    first, last = (item.item() if isinstance(item, Tensor) else item for item in (start, end))
    return Tensor.of(np.logspace(first, last, steps, base=base).astype(_name(dtype)))


def _frequencies(name: str, samples: str) -> Callable[..., Tensor]:
    return formula(
        f"the frequencies of a discrete Fourier transform of ``n`` {samples}",
        lambda n, d=1.0, dtype=None: Tensor.of(getattr(np.fft, name)(n, d).astype(_name(dtype))),
    )


def _shift(name: str, direction: int, what: str) -> Callable[..., Tensor]:
    def function(input: Any, dim: Any = None) -> Tensor:
        tensor = need_tensor(input, name)
        axes = tuple(range(tensor.ndim)) if dim is None else ints(dim, f"the axes of {name}")
        return roll(tensor, tuple(tensor.shape[axis] // 2 * direction for axis in axes), axes)

    return formula(f"the tensor with {what}", function)


permute = spelled(transpose, axis="dims")
moveaxis = movedim
unsqueeze = spelled(expand_dims, input="input_x", dim="axis")
cat = concat
unbind = unstack
expand = spelled(broadcast_to, input_x="input", size="shape")
index_select = formula("``gather(input, index, axis)``", lambda input, axis, index: gather(input, index, axis))
take = formula("the elements of the flattened tensor that ``index`` names",
    lambda input, index: gather(ravel(input), index, 0))  # fmt: skip
gather_nd = formula("the slices that the vectors along the last axis of ``indices`` name",
    of_tensor(lambda input_x, indices:
        emit("GatherND", input_x, _cast(_indices(indices, "gather_nd"), "int64"))))  # fmt: skip
in_range = formula("indices of one of ``count`` elements; what is outside is an error",
    lambda indices, count: emit("InRange", indices, domain="opbuild", counts=(count,), negative=False))  # fmt: skip
gather_d = spelled(gather_elements, x="input")
zeros = formula("zeros of a shape; float32 by default",
    lambda size, dtype=None: Tensor.of(np.zeros(ints(size, "the shape of zeros"), _name(dtype))))  # fmt: skip
ones = formula("ones of a shape; float32 by default",
    lambda shape, dtype=None: Tensor.of(np.ones(ints(shape, "the shape of ones"), _name(dtype))))  # fmt: skip
fill = formula("one number in every element of a tensor of an element type and shape",
    lambda type, shape, value: full(shape, value, dtype=type))  # fmt: skip
zeros_like = formula("zeros of the shape (and type) of a tensor",
    of_tensor(lambda input, *, dtype=None: zeros(input.shape, dtype or input.dtype)))  # fmt: skip
ones_like = formula("ones of the shape (and type) of a tensor",
    of_tensor(lambda input, *, dtype=None: ones(input.shape, dtype or input.dtype)))  # fmt: skip
full_like = formula("one number in every element, in the shape (and type) of a tensor",
    of_tensor(lambda input, fill_value, *, dtype=None:
        full(input.shape, fill_value, dtype=dtype or input.dtype)))  # fmt: skip
eye = formula("ones on the diagonal of an ``n`` by ``m`` matrix and zeros elsewhere",
    lambda n, m=None, dtype=None: Tensor.of(np.eye(n, m, dtype=_name(dtype))))  # fmt: skip
scalar_to_tensor = formula("a tensor without dimensions",
    lambda input_x, dtype=None: Tensor(input_x, dtype or np.float32))  # fmt: skip
bartlett_window = _window_of(np.bartlett, "a triangle that begins (and ends, if not periodic) with 0")
blackman_window = _window_of(np.blackman, "Blackman's window")
hann_window = _window_of(np.hanning, "Hann's window, in float64 by default", np.float64)
fftfreq, rfftfreq = _frequencies("fftfreq", "samples ``d`` apart"), _frequencies("rfftfreq", "real samples ``d`` apart")
fftshift = _shift("fftshift", 1, "frequency 0 moved to the middle")
ifftshift = _shift("ifftshift", -1, "the middle moved to the front: what undoes ``fftshift``")
kaiser_window = formula("Kaiser's window, in float64 by default",
    lambda window_length, periodic=True, beta=12.0, *, dtype=None:
        _window(lambda count: np.kaiser(count, beta), window_length, periodic, dtype or np.float64))  # fmt: skip

names.export(vars(), but="cut in_range ints reshaped")
