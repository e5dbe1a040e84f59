"""More functions of shapes: splitting, joining, diagonals (also of MatrixDiag and its kin), blocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore.arguments import ArgumentValueError, axis_in, one_of
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.host import on_data
from opbuild.mindspore.ops.arithmetic import less, mul, where
from opbuild.mindspore.ops.declaration import formula, need_tensor, of_tensor, spelled
from opbuild.mindspore.ops.gathering import gather
from opbuild.mindspore.ops.shaping import (
    broadcast_to,
    concat,
    cut,
    expand_dims,
    flip,
    ints,
    meshgrid,
    pad,
    ravel,
    repeat_interleave,
    reshape,
    reshaped,
    squeeze,
    stack,
    swapaxes,
    transpose,
)  # fmt: skip
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "adjoint", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "cartesian_prod", "column_stack", "diag",
    "diag_embed", "diagflat", "diagonal", "diagonal_scatter", "dsplit", "dstack", "expand_as", "fills", "fliplr",
    "flipud", "hsplit", "matrix_band_part", "matrix_diag", "matrix_diag_part", "matrix_set_diag", "numel", "range",
    "repeat_elements", "reverse", "reverse_sequence", "rot90", "row_stack", "sequence_mask", "strided_slice",
    "swapdims", "t", "tensor_split", "tril_indices", "triu_indices", "vander", "view_as", "vsplit", "vstack",
]  # fmt: skip

t = formula("t", "a matrix transposed; vectors as they are",
            of_tensor(lambda input: transpose(input, (1, 0)) if input.ndim == 2 else input))  # fmt: skip
numel = formula("numel", "the number of elements", of_tensor(lambda input: input.size))
column_stack = formula(
    "column_stack", "tensors joined along axis 1; vectors are columns",
    lambda tensors: concat([reshaped(item, (item.size, 1)) if item.ndim < 2 else item for item in tensors], 1),
)  # fmt: skip
dstack = formula("dstack", "tensors joined along axis 2",
                 lambda tensors: concat([_at_least(item, 3) for item in tensors], 2))  # fmt: skip
row_stack = formula("row_stack", "tensors joined along axis 0; vectors are rows",
                    lambda tensors: concat([_at_least(item, 2) for item in tensors], 0))  # fmt: skip
expand_as = formula("expand_as", "the tensor repeated to the shape of another",
                    lambda input, other: broadcast_to(input, need_tensor(other, "expand_as").shape))  # fmt: skip
view_as = formula("view_as", "the elements in the shape of another tensor",
                  lambda input, other: reshape(input, need_tensor(other, "view_as").shape))  # fmt: skip
diag = formula("diag", "zeros with a tensor on the diagonal: of a vector a matrix, in general twice the axes",
               of_tensor(lambda input: reshaped(diag_embed(ravel(input)), input.shape * 2)))  # fmt: skip
diagflat = formula("diagflat", "a matrix with all elements on a diagonal",
                   of_tensor(lambda input, offset=0: diag_embed(ravel(input), offset)))  # fmt: skip
repeat_elements = formula("repeat_elements", "the tensor with each slice along ``axis`` repeated",
                          lambda x, rep, axis=0: repeat_interleave(x, rep, axis))  # fmt: skip


adjoint = spelled(swapaxes, "adjoint", "Return the tensor with its last two axes exchanged.",
                  {"axis0": -1, "axis1": -2}, x="input")  # fmt: skip
swapdims = spelled(swapaxes, "swapdims", dim0="axis0", dim1="axis1")


def _at_least(tensor: Tensor, rank: int) -> Tensor:
    tensor = need_tensor(tensor, f"atleast_{rank}d")
    if tensor.ndim >= rank:
        return tensor
    shapes = {0: (1,) * rank, 1: (1,) * (rank - 1) + tensor.shape, 2: (*tensor.shape, 1)}
    return reshaped(tensor, (1, tensor.size, 1) if (tensor.ndim, rank) == (1, 3) else shapes[tensor.ndim])


def _each_at_least(rank: int) -> Callable[[Any], Any]:
    def function(inputs: Any) -> Any:
        several = isinstance(inputs, (list, tuple))
        return [_at_least(item, rank) for item in inputs] if several else _at_least(inputs, rank)

    return formula(f"atleast_{rank}d", f"tensors of at least {rank} dimension{'s'[: rank - 1]}", function)


atleast_1d, atleast_2d, atleast_3d = (_each_at_least(rank) for rank in (1, 2, 3))


vstack = spelled(row_stack, "vstack", inputs="tensors")


def tensor_split(input: Any, indices_or_sections: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """Return parts along ``axis``: so many, or cut before each of the indices listed."""
    tensor = need_tensor(input, "tensor_split")
    place = axis_in(axis, tensor.ndim, "tensor_split")
    extent = tensor.shape[place]
    if isinstance(indices_or_sections, int):
        share, more = divmod(extent, indices_or_sections)
        sizes = [share + 1] * more + [share] * (indices_or_sections - more)
        bounds = np.cumsum([0, *sizes]).tolist()
    else:
        bounds = [0, *(min(item + extent * (item < 0), extent) for item in indices_or_sections), extent]
    pairs = itertools.pairwise(bounds)
    return tuple(cut(tensor, [start], [max(start, end)], [place], [1]) for start, end in pairs)


def hsplit(input: Any, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Return parts along axis 1, of vectors along axis 0."""
    return tensor_split(input, indices_or_sections, 1 if need_tensor(input, "hsplit").ndim > 1 else 0)


vsplit = spelled(tensor_split, "vsplit", "Return parts along axis 0.", {"axis": 0})
dsplit = spelled(tensor_split, "dsplit", "Return parts along axis 2.", {"axis": 2})
fliplr = spelled(flip, "fliplr", "Return the tensor with axis 1 reversed.", {"dims": (1,)})
flipud = spelled(flip, "flipud", "Return the tensor with axis 0 reversed.", {"dims": (0,)})
reverse = spelled(flip, "reverse", x="input", axis="dims")


def rot90(input: Any, k: int, dims: Any) -> Tensor:
    """Return the tensor turned ``k`` times by 90 degrees from one axis to another."""
    first, second = ints(dims, "dims")
    turns = k % 4
    if turns == 1:
        return swapaxes(flip(input, (second,)), first, second)
    if turns == 3:
        return flip(swapaxes(input, first, second), (second,))
    return flip(input, (first, second)) if turns else need_tensor(input, "rot90")


def fills(x: Any, value: Any) -> Tensor:
    """Return one number in the shape and type of a tensor."""
    tensor = need_tensor(x, "fills")
    number = value.item() if isinstance(value, Tensor) else value
    return Tensor.of(np.full(tensor.shape, number, tensor.type.dtype))


def range(start: Any, end: Any, step: Any, maxlen: int = 1000000) -> Tensor:
    """Return numbers from ``start`` to below ``end``."""
    from opbuild.mindspore.ops.creation import arange

    return arange(*(item.item() if isinstance(item, Tensor) else item for item in (start, end, step)))


def _mask(rows: int, columns: int, offset: int) -> Any:
    return np.eye(rows, columns, offset, dtype=bool)


def diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return the diagonal of two axes as the last axis."""
    tensor = need_tensor(input, "diagonal")
    first, second = axis_in(dim1, tensor.ndim, "diagonal"), axis_in(dim2, tensor.ndim, "diagonal")
    rest = [axis for axis in np.arange(tensor.ndim).tolist() if axis not in (first, second)]
    ordered = transpose(tensor, (*rest, first, second))
    rows, columns = ordered.shape[-2:]
    places = np.flatnonzero(_mask(rows, columns, offset))
    flat = reshaped(ordered, (*ordered.shape[:-2], rows * columns))
    if not places.size:
        return cut(flat, [0], [0], [flat.ndim - 1], [1])
    return gather(flat, Tensor.of(places), flat.ndim - 1)


def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return zeros with the last axis of the tensor on the diagonal of two new axes."""
    tensor = need_tensor(input, "diag_embed")
    rank, extent = tensor.ndim + 1, tensor.shape[-1]
    square = broadcast_to(expand_dims(tensor, -2), (*tensor.shape[:-1], extent, extent))
    spread = pad(square, (max(offset, 0), max(-offset, 0), max(-offset, 0), max(offset, 0)))
    matrix = where(
        Tensor.of(_mask(spread.shape[-2], spread.shape[-1], offset)), spread, Tensor.of(np.zeros((), tensor.type.dtype))
    )
    first, second = axis_in(dim1, rank, "diag_embed"), axis_in(dim2, rank, "diag_embed")
    order = np.arange(rank - 2).tolist()
    for place, axis in sorted([(first, rank - 2), (second, rank - 1)]):
        order.insert(place, axis)
    return transpose(matrix, order)


def diag_part(input: Any) -> Tensor:
    """Return the diagonal of a tensor whose first half of axes has the extents of the second."""
    tensor = need_tensor(input, "DiagPart")
    half = tensor.shape[: tensor.ndim // 2]
    return reshaped(diagonal(reshaped(tensor, (prod(half), prod(half)))), half)


def diagonal_scatter(input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return the tensor with ``src`` on the diagonal of two axes."""
    tensor = need_tensor(input, "diagonal_scatter")
    first, second = axis_in(dim1, tensor.ndim, "diagonal"), axis_in(dim2, tensor.ndim, "diagonal")
    placed = diag_embed(src, offset, first, second)
    amounts = [0] * (2 * tensor.ndim)
    for axis in (first, second):
        amounts[2 * (tensor.ndim - 1 - axis) + 1] = tensor.shape[axis] - placed.shape[axis]
    inside = tuple(slice(extent) for extent in tensor.shape)
    placed = pad(placed[inside], [max(amount, 0) for amount in amounts])  # type: ignore[index]
    shape = [1] * tensor.ndim
    shape[first], shape[second] = tensor.shape[first], tensor.shape[second]
    mask = _mask(tensor.shape[first], tensor.shape[second], offset)
    mask = mask if first < second else mask.T
    return where(Tensor.of(np.ascontiguousarray(mask).reshape(shape)), placed, tensor)


def block_diag(*inputs: Any) -> Tensor:
    """Return a matrix with matrices along its diagonal."""
    blocks = [_at_least(item, 2) for item in inputs]
    width = sum(item.shape[1] for item in blocks)
    rows, before = [], 0
    for item in blocks:
        rows.append(pad(item, (before, width - before - item.shape[1])))
        before += item.shape[1]
    return concat(rows, 0)


def cartesian_prod(*inputs: Any) -> Tensor:
    """Return all combinations of one element from each vector, a row each."""
    if len(inputs) == 1:
        return need_tensor(inputs[0], "cartesian_prod")
    return stack([ravel(item) for item in meshgrid(*inputs, indexing="ij")], -1)


def matrix_band_part(x: Any, lower: Any, upper: Any) -> Tensor:
    """Return the matrix with 0 below its ``lower`` diagonals and above its ``upper`` ones; -1 keeps all."""
    tensor = need_tensor(x, "matrix_band_part")
    low, high = (int(item) for item in (lower, upper))
    distance = np.subtract.outer(np.arange(tensor.shape[-2]), np.arange(tensor.shape[-1]))
    kept = ((low < 0) | (distance <= low)) & ((high < 0) | (-distance <= high))
    return where(Tensor.of(kept), tensor, Tensor.of(np.zeros((), tensor.type.dtype)))


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = np.int64) -> Tensor:
    """Return the coordinates of a matrix on and below a diagonal, two rows."""
    return Tensor.of(np.array(np.tril_indices(row, offset, col)).astype(to_type(dtype).name))


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = np.int64) -> Tensor:
    """Return the coordinates of a matrix on and above a diagonal, two rows."""
    return Tensor.of(np.array(np.triu_indices(row, offset, col)).astype(to_type(dtype).name))


def vander(x: Any, N: int | None = None) -> Tensor:
    """Return powers of each element as a row, the highest first."""
    tensor = need_tensor(x, "vander")
    count = tensor.size if N is None else N
    powers = [Tensor.of(np.ones(tensor.shape, tensor.type.dtype))]
    for _ in np.arange(count - 1):
        powers.append(mul(powers[-1], tensor))
    return stack(powers[:count][::-1], -1)


def sequence_mask(lengths: Any, maxlen: int | None = None) -> Tensor:
    """Return, along a new last axis, whether each place is before the length."""
    tensor = need_tensor(lengths, "sequence_mask")
    count = int(tensor.asnumpy().max()) if maxlen is None else int(maxlen)
    return less(Tensor.of(np.arange(count)), expand_dims(cast(tensor, "int64"), -1))


def reverse_sequence(x: Any, seq_lengths: Any, seq_dim: int, batch_dim: int = 0) -> Tensor:
    """Return the tensor with the first elements along ``seq_dim`` reversed, as many as each sample's length."""
    tensor = need_tensor(x, "reverse_sequence")
    if {seq_dim, batch_dim} != {0, 1}:
        raise ArgumentValueError(f"reverse_sequence of axes {seq_dim} and {batch_dim}", "use axes 0 and 1")
    lengths = cast(need_tensor(seq_lengths, "reverse_sequence"), "int64")
    return emit("ReverseSequence", tensor, lengths, time_axis=seq_dim, batch_axis=batch_dim)


def strided_slice(input_x: Any, begin: Any, end: Any, strides: Any, begin_mask: int = 0, end_mask: int = 0,
                  ellipsis_mask: int = 0, new_axis_mask: int = 0, shrink_axis_mask: int = 0) -> Tensor:  # fmt: skip
    """Return every ``strides``-th element between ``begin`` and ``end``; a bit of a mask ignores that bound."""
    if ellipsis_mask or new_axis_mask:
        raise ArgumentValueError(
            "StridedSlice with an ellipsis or new axis mask", "index the tensor with x[...] instead"
        )
    starts, ends, steps = list(begin), list(end), list(strides)
    axes = np.arange(len(starts)).tolist()
    for index, step in enumerate(steps):
        if shrink_axis_mask >> index & 1:
            ends[index], steps[index] = starts[index] + 1 or input_x.shape[index], 1
            continue
        if begin_mask >> index & 1:
            starts[index] = 0 if step > 0 else input_x.shape[index]
        if end_mask >> index & 1:
            ends[index] = input_x.shape[index] if step > 0 else -(2**31)
    result = cut(input_x, starts, ends, axes, steps)
    gone = tuple(index for index in axes if shrink_axis_mask >> index & 1)
    return squeeze(result, gone) if gone else result


_ALIGNMENTS = ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT")

matrix_set_diag = formula(
    "matrix_set_diag", "matrices with the diagonals ``k`` replaced",
    on_data(lambda x, diagonal, k=0, align="RIGHT_LEFT": _filled(x.copy(), diagonal, k, align)),
)  # fmt: skip


def _bounds(k: Any) -> tuple[int, int]:
    values = [int(item) for item in np.asarray(k).reshape(-1)]
    return values[0], values[-1]


def _start(offset: int, length: int, widest: int, align: str) -> int:
    """Return the start of a diagonal in its row; the first word is for those above, the second for those below."""
    side = align.split("_")[0 if offset >= 0 else 1]
    return widest - length if side == "RIGHT" else 0


def _places(rows: int, columns: int, k: Any, align: str) -> Any:
    """Return for each diagonal, the highest first: its row and start in the packed form, and its places."""
    one_of(align, _ALIGNMENTS, "align")
    low, high = _bounds(k)
    lengths = {d: min(rows + min(d, 0), columns - max(d, 0)) for d in np.arange(low, high + 1).tolist()}
    widest = max(lengths.values())
    for d in np.arange(high, low - 1, -1).tolist():
        steps = np.arange(lengths[d])
        yield high - d, _start(d, lengths[d], widest, align), steps - min(d, 0), steps + max(d, 0)


@on_data
def matrix_diag_part(x: Any, k: Any, padding_value: Any, align: str = "RIGHT_LEFT") -> Any:
    """Return the diagonals ``k`` (one, or from the first to the last) of matrices as rows, the highest first."""
    rows, columns = x.shape[-2:]
    low, high = _bounds(k)
    widest = min(rows + min(high, 0), columns - max(low, 0))
    packed = np.full((*x.shape[:-2], high - low + 1, widest), padding_value, x.dtype)
    for row, start, down, right in _places(rows, columns, k, align):
        packed[..., row, start : start + len(down)] = x[..., down, right]
    return packed[..., 0, :] if low == high else packed


def _filled(result: Array, diagonal: Array, k: Any, align: str) -> Array:
    low, high = _bounds(k)
    packed = diagonal[..., None, :] if low == high else diagonal
    for row, start, down, right in _places(result.shape[-2], result.shape[-1], k, align):
        result[..., down, right] = packed[..., row, start : start + len(down)]
    return result


@on_data
def matrix_diag(x: Any, k: Any = 0, num_rows: Any = -1, num_cols: Any = -1, padding_value: Any = 0,
                align: str = "RIGHT_LEFT") -> Any:  # fmt: skip
    """Return matrices with the diagonals ``k`` given and ``padding_value`` elsewhere."""
    low, high = _bounds(k)
    rows, columns = int(num_rows), int(num_cols)
    least_rows, least_columns = x.shape[-1] + max(-high, 0), x.shape[-1] + max(low, 0)
    if rows == -1 and columns == -1:
        rows = columns = max(least_rows, least_columns)
    rows = least_rows if rows == -1 else rows
    columns = least_columns if columns == -1 else columns
    front = x.shape[:-1] if low == high else x.shape[:-2]
    return _filled(np.full((*front, rows, columns), padding_value, x.dtype), x, k, align)
