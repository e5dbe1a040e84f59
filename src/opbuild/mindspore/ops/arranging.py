"""Splitting, joining, diagonals; selection by values; scatter: elements replaced or combined at given places."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from opbuild.dtypes import float_limits, is_float
from opbuild.frontend.cell import current
from opbuild.graph.types import Array
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, axis_in, one_of
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.execution import cast, emit, on_data, symbol_of
from opbuild.mindspore.ops import shaping
from opbuild.mindspore.ops.arithmetic import as_operand, div, less, maximum, mul, neg, where
from opbuild.mindspore.ops.declaration import formula, named, need_tensor, of_tensor, spelled
from opbuild.mindspore.parameter import Parameter, need_states
from opbuild.mindspore.tensor import Tensor

_ALIGNMENTS = ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT")


def _at_least(tensor: Tensor, rank: int) -> Tensor:
    tensor = need_tensor(tensor, f"atleast_{rank}d")
    if tensor.ndim >= rank:
        return tensor
    shapes = {0: (1,) * rank, 1: (1,) * (rank - 1) + tensor.shape, 2: (*tensor.shape, 1)}
    return shaping.reshaped(tensor, (1, tensor.size, 1) if (tensor.ndim, rank) == (1, 3) else shapes[tensor.ndim])


def _each_at_least(rank: int) -> Callable[[Any], Any]:
    def function(inputs: Any) -> Any:
        several = isinstance(inputs, (list, tuple))
        return [_at_least(item, rank) for item in inputs] if several else _at_least(inputs, rank)

    return formula(f"tensors of at least {rank} dimension{'s'[: rank - 1]}", function)


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
    return tuple(shaping.cut(tensor, [start], [max(start, end)], [place], [1]) for start, end in pairs)


def rot90(input: Any, k: int, dims: Any) -> Tensor:
    """Return the tensor turned ``k`` times by 90 degrees from one axis to another."""
    first, second = shaping.ints(dims, "dims")
    turns = k % 4
    if turns == 1:
        return shaping.swapaxes(shaping.flip(input, (second,)), first, second)
    if turns == 3:
        return shaping.flip(shaping.swapaxes(input, first, second), (second,))
    return shaping.flip(input, (first, second)) if turns else need_tensor(input, "rot90")


def fills(x: Any, value: Any) -> Tensor:
    """Return one number in the shape and type of a tensor."""
    tensor = need_tensor(x, "fills")
    number = value.item() if isinstance(value, Tensor) else value
    return Tensor.of(np.full(tensor.shape, number, tensor.type.dtype))


def range(start: Any, end: Any, step: Any, maxlen: int = 1000000) -> Tensor:
    """Return numbers from ``start`` to below ``end``."""
    return shaping.arange(*(item.item() if isinstance(item, Tensor) else item for item in (start, end, step)))


def _mask(rows: int, columns: int, offset: int) -> Any:
    return np.eye(rows, columns, offset, dtype=bool)


def diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return the diagonal of two axes as the last axis."""
    tensor = need_tensor(input, "diagonal")
    first, second = axis_in(dim1, tensor.ndim, "diagonal"), axis_in(dim2, tensor.ndim, "diagonal")
    rest = [axis for axis in np.arange(tensor.ndim).tolist() if axis not in (first, second)]
    ordered = shaping.transpose(tensor, (*rest, first, second))
    rows, columns = ordered.shape[-2:]
    places = np.flatnonzero(_mask(rows, columns, offset))
    flat = shaping.reshaped(ordered, (*ordered.shape[:-2], rows * columns))
    if not places.size:
        return shaping.cut(flat, [0], [0], [flat.ndim - 1], [1])
    return shaping.gather(flat, Tensor.of(places), flat.ndim - 1)


def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return zeros with the last axis of the tensor on the diagonal of two new axes."""
    tensor = need_tensor(input, "diag_embed")
    rank, extent = tensor.ndim + 1, tensor.shape[-1]
    square = shaping.broadcast_to(shaping.expand_dims(tensor, -2), (*tensor.shape[:-1], extent, extent))
    spread = shaping.pad(square, (max(offset, 0), max(-offset, 0), max(-offset, 0), max(offset, 0)))
    zero = Tensor.of(np.zeros((), tensor.type.dtype))
    matrix = where(Tensor.of(_mask(spread.shape[-2], spread.shape[-1], offset)), spread, zero)
    first, second = axis_in(dim1, rank, "diag_embed"), axis_in(dim2, rank, "diag_embed")
    order = np.arange(rank - 2).tolist()
    for place, axis in sorted([(first, rank - 2), (second, rank - 1)]):
        order.insert(place, axis)
    return shaping.transpose(matrix, order)


def diag_part(input: Any) -> Tensor:
    """Return the diagonal of a tensor whose first half of axes has the extents of the second."""
    tensor = need_tensor(input, "DiagPart")
    half = tensor.shape[: tensor.ndim // 2]
    return shaping.reshaped(diagonal(shaping.reshaped(tensor, (prod(half), prod(half)))), half)


def diagonal_scatter(input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return the tensor with ``src`` on the diagonal of two axes."""
    tensor = need_tensor(input, "diagonal_scatter")
    first, second = axis_in(dim1, tensor.ndim, "diagonal"), axis_in(dim2, tensor.ndim, "diagonal")
    placed = diag_embed(src, offset, first, second)
    amounts = [0] * (2 * tensor.ndim)
    for axis in (first, second):
        amounts[2 * (tensor.ndim - 1 - axis) + 1] = tensor.shape[axis] - placed.shape[axis]
    inside = tuple(slice(extent) for extent in tensor.shape)
    placed = shaping.pad(placed[inside], [max(amount, 0) for amount in amounts])  # type: ignore[index]
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
        rows.append(shaping.pad(item, (before, width - before - item.shape[1])))
        before += item.shape[1]
    return shaping.concat(rows, 0)


def cartesian_prod(*inputs: Any) -> Tensor:
    """Return all combinations of one element from each vector, a row each."""
    if len(inputs) == 1:
        return need_tensor(inputs[0], "cartesian_prod")
    return shaping.stack([shaping.ravel(item) for item in shaping.meshgrid(*inputs, indexing="ij")], -1)


def matrix_band_part(x: Any, lower: Any, upper: Any) -> Tensor:
    """Return the matrix with 0 below its ``lower`` diagonals and above its ``upper`` ones; -1 keeps all."""
    tensor = need_tensor(x, "matrix_band_part")
    low, high = (int(item) for item in (lower, upper))
    distance = np.subtract.outer(np.arange(tensor.shape[-2]), np.arange(tensor.shape[-1]))
    kept = ((low < 0) | (distance <= low)) & ((high < 0) | (-distance <= high))
    return where(Tensor.of(kept), tensor, Tensor.of(np.zeros((), tensor.type.dtype)))


def vander(x: Any, N: int | None = None) -> Tensor:
    """Return powers of each element as a row, the highest first."""
    tensor = need_tensor(x, "vander")
    count = tensor.size if N is None else N
    powers = [Tensor.of(np.ones(tensor.shape, tensor.type.dtype))]
    for _ in np.arange(count - 1):
        powers.append(mul(powers[-1], tensor))
    return shaping.stack(powers[:count][::-1], -1)


def sequence_mask(lengths: Any, maxlen: int | None = None) -> Tensor:
    """Return, along a new last axis, whether each place is before the length."""
    tensor = need_tensor(lengths, "sequence_mask")
    count = int(tensor.asnumpy().max()) if maxlen is None else int(maxlen)
    return less(Tensor.of(np.arange(count)), shaping.expand_dims(cast(tensor, "int64"), -1))


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
    result = shaping.cut(input_x, starts, ends, axes, steps)
    gone = tuple(index for index in axes if shrink_axis_mask >> index & 1)
    return shaping.squeeze(result, gone) if gone else result


def _bounds(k: Any) -> tuple[int, int]:
    values = [int(item) for item in np.asarray(k).reshape(-1)]
    return values[0], values[-1]


def _places(rows: int, columns: int, k: Any, align: str) -> Any:
    """Return for each diagonal, the highest first: its row and start in the packed form, and its places."""
    above, below = one_of(align, _ALIGNMENTS, "align").split("_")
    low, high = _bounds(k)
    lengths = {d: min(rows + min(d, 0), columns - max(d, 0)) for d in np.arange(low, high + 1).tolist()}
    widest = max(lengths.values())
    for d in np.arange(high, low - 1, -1).tolist():
        steps = np.arange(lengths[d])
        start = widest - lengths[d] if (above if d >= 0 else below) == "RIGHT" else 0
        yield high - d, start, steps - min(d, 0), steps + max(d, 0)


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


@on_data
def masked_select(input: Any, mask: Any) -> Any:
    """Return the elements where ``mask`` is true, as a vector."""
    tensor, chosen = np.broadcast_arrays(input, mask)
    return tensor[chosen]


@on_data
def masked_scatter(input: Any, mask: Any, source: Any) -> Any:
    """Return the tensor with the elements of ``source``, in order, where ``mask`` is true."""
    shape = np.broadcast_shapes(input.shape, mask.shape)
    result = np.broadcast_to(input, shape).copy()
    chosen = np.broadcast_to(mask, shape)
    if source.size < chosen.sum():
        raise ArgumentValueError(
            f"masked_scatter of {source.size} elements to {chosen.sum()} places", "give at least as many elements"
        )
    result[chosen] = source.reshape(-1)[: chosen.sum()]
    return result


def _distinct(array: Array) -> tuple[Array, Array]:
    values, first, inverse = np.unique(array, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return values[order], np.argsort(order)[inverse.reshape(-1)]


@on_data
def unique(input: Any) -> Any:
    """Return the different elements in the order of their first appearance, and each element's index among them."""
    values, places = _distinct(input)
    return values, places.reshape(input.shape).astype(np.int64 if input.dtype == np.int64 else np.int32)


@on_data
def unique_with_pad(x: Any, pad_num: Any) -> Any:
    """Return ``unique`` of a vector, filled up with ``pad_num`` to its length."""
    values, places = _distinct(x)
    padded = np.full(x.shape, pad_num, x.dtype)
    padded[: len(values)] = values
    return padded, places.astype(x.dtype)


@on_data
def unique_consecutive(
    input: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Return the elements (or slices along ``dim``) without those equal to the one before.

    If asked, the place of each element among the results and how often each result repeats come too.
    """
    rows = np.moveaxis(input, dim, 0) if dim is not None else input.reshape(-1)
    flat = rows.reshape(len(rows), -1) if rows.size else rows.reshape(len(rows), 0)
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (flat[1:] != flat[:-1]).any(-1)
    groups = np.cumsum(fresh) - 1
    values = rows[fresh] if dim is None else np.moveaxis(rows[fresh], 0, dim)
    results = [values]
    if return_inverse:
        results.append(groups if dim is not None else groups.reshape(input.shape))
    if return_counts:
        results.append(np.bincount(groups, minlength=int(fresh.sum())))
    return results[0] if len(results) == 1 else tuple(results)


@on_data
def bincount(input: Any, weights: Any = None, minlength: int = 0) -> Any:
    """Return the count of each integer from 0 on (float32), or the sums of its weights."""
    result = np.bincount(input, weights, minlength)
    return result.astype(weights.dtype if weights is not None and is_float(weights.dtype.name) else np.float32)


@on_data
def histc(input: Any, bins: int = 100, min: float = 0.0, max: float = 0.0) -> Any:
    """Return the number of elements in each of equal parts from ``min`` to ``max``; the data's, if both are equal."""
    low, high = (input.min(), input.max()) if min == max else (min, max)
    counts = np.histogram(input.astype(np.float64), bins, (low - (low == high), high + (low == high)))[0]
    return counts.astype(np.float32 if is_float(input.dtype.name) else np.int32)


@on_data
def histogram_fixed_width(x: Any, range: Any, nbins: int) -> Any:
    """Return the number of elements in each of ``nbins`` equal parts of a range; those beyond it count to the outer."""
    low, high = (float(item) for item in range)
    places = np.floor((x.astype(np.float64) - low) / (high - low) * nbins)
    return np.bincount(np.clip(places, 0, nbins - 1).astype(np.int64).reshape(-1), minlength=nbins).astype(np.int32)


@on_data
def searchsorted(sorted_sequence: Any, values: Any, *, out_int32: bool = False, right: bool = False, side: Any = None,
                 sorter: Any = None) -> Any:  # fmt: skip
    """Return the place where each value would be inserted so that the sequence stays in order."""
    bound: Any = side or ("right" if right else "left")
    kind = np.int32 if out_int32 else np.int64
    if sorted_sequence.ndim == 1:
        return np.asarray(np.searchsorted(sorted_sequence, values, bound, sorter)).astype(kind)
    rows = sorted_sequence.reshape(-1, sorted_sequence.shape[-1])
    orders = [None] * len(rows) if sorter is None else list(sorter.reshape(rows.shape))
    found = [np.searchsorted(row, each, bound, order)
             for row, each, order in zip(rows, values.reshape(len(rows), -1), orders, strict=True)]  # fmt: skip
    return np.array(found).reshape(values.shape).astype(kind)


@on_data
def kthvalue(input: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the ``k``-th smallest element along ``dim`` and its index (int64)."""
    places = np.take(np.argsort(input, dim, kind="stable"), [k - 1], dim)
    values = np.take_along_axis(input, places, dim)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


@on_data
def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Any:
    """Return all choices of ``r`` elements of a vector, a row each."""
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    return np.array(list(choose(input, r)), input.dtype).reshape(-1, r)


@on_data
def list_diff(x: Any, y: Any, out_idx: Any) -> Any:
    """Return the elements of a vector that another does not have, and their indices."""
    places = np.flatnonzero(~np.isin(x, y))
    return x[places], places.astype(to_type(out_idx).name)


def segment(name: str, function: Any, empty: float) -> Any:
    """Return the function that reduces the rows of each segment: ``ids`` are in order, rows without one give 0."""

    @on_data
    def reduced(input_x: Any, segment_ids: Any) -> Any:
        count = int(segment_ids[-1]) + 1 if len(segment_ids) else 0
        result = np.full((count, *input_x.shape[1:]), empty, input_x.dtype)
        for each in np.unique(segment_ids):
            result[each] = function(input_x[segment_ids == each], axis=0)
        return result

    reduced.__name__ = name
    return reduced


def _indices_of(value: Any, name: str) -> Tensor:
    tensor = Tensor(value) if isinstance(value, (int, list, tuple)) else need_tensor(value, name)
    return cast(tensor, "int64")


def at_vectors(tensor: Any, indices: Any, updates: Any, how: str, name: str) -> Tensor:
    """Return the tensor with ``updates`` combined at the places that the vectors of ``indices`` name."""
    target, values = need_tensor(tensor, name), need_tensor(updates, name)
    places = _indices_of(indices, name)
    if how in ("sub", "div"):  # ONNX has neither
        if how == "sub":
            how, values = "add", neg(values)
        else:
            ones = Tensor.of(np.ones(target.shape, target.type.dtype))
            divisor = emit("ScatterND", ones, places, values, reduction="mul")
            return cast(div(target, divisor), target.type.dtype)
    return emit("ScatterND", target, places, cast(values, target.type.dtype), reduction=how)


def _tensor_scatter(how: str) -> Callable[[Any, Any, Any], Tensor]:
    def function(input_x: Any, indices: Any, updates: Any) -> Tensor:
        return at_vectors(input_x, indices, updates, how, f"tensor_scatter_{how}")

    doc = f"Return the tensor with ``updates`` combined ({how}) at the places that ``indices`` names."
    return named(function, f"tensor_scatter_{how}", doc)


def replaced(target: Any, result: Tensor, name: str) -> Tensor:
    """Give a parameter or tensor the elements of ``result`` and return it."""
    tensor = need_tensor(target, name)
    trace = current()
    if trace is not None:
        if isinstance(tensor, Parameter):
            need_states().write(tensor, symbol_of(trace, result))
            return tensor
        if tensor.symbol is None:
            raise ArgumentTypeError(f"construct changes a tensor by {name}", "return it, or let it be a Parameter")
        tensor._value = result._value
        return tensor
    array, wanted = tensor.asnumpy(), result.asnumpy()
    if array.flags.writeable and array.shape == wanted.shape:
        array[...] = wanted
    else:
        tensor._value = wanted.astype(array.dtype)
    if isinstance(tensor, Parameter):
        tensor.version += 1
    return tensor


def _scatter_nd(how: str, label: str) -> Callable[..., Tensor]:
    def function(input_x: Any, indices: Any, updates: Any, use_locking: bool = False) -> Tensor:
        return replaced(input_x, at_vectors(input_x, indices, updates, how, label), label)

    doc = f"Combine ({label[11:]}) ``updates`` into a parameter at the places that ``indices`` names."
    return named(function, label, doc)


def _scatter_rows(how: str, label: str) -> Callable[..., Tensor]:
    def function(input_x: Any, indices: Any, updates: Any) -> Tensor:
        rows = shaping.expand_dims(_indices_of(indices, label), -1)
        return replaced(input_x, at_vectors(input_x, rows, updates, how, label), label)

    doc = f"Combine ({label[8:]}) ``updates`` into the rows of a parameter that ``indices`` names."
    return named(function, label, doc)


def tensor_scatter_elements(input_x: Any, indices: Any, updates: Any, axis: int = 0, reduction: str = "none") -> Tensor:
    """Return the tensor with each element of ``updates`` at its own place, but at its index along ``axis``."""
    tensor = need_tensor(input_x, "scatter")
    one_of(reduction, ("none", "add", "mul", "max", "min"), "the reduction")
    places = _indices_of(indices, "scatter")
    values = updates if isinstance(updates, Tensor) else Tensor.of(np.full(places.shape, updates, tensor.type.dtype))
    if values.shape != places.shape:  # the first elements of a larger source are taken
        values = values[tuple(slice(extent) for extent in places.shape)]  # type: ignore[index]
    place = axis_in(axis, tensor.ndim, "scatter")
    return emit("ScatterElements", tensor, places, cast(values, tensor.type.dtype), axis=place, reduction=reduction)


def along(tensor: Any, axis: int, index: Any, values: Any, how: str, name: str) -> Tensor:
    """Return the tensor with slices along ``axis`` replaced by, or combined with, those of ``values``."""
    target = need_tensor(tensor, name)
    place = axis_in(axis, target.ndim, name)
    places = _indices_of(index, name)
    rows = shaping.reshaped(places, (places.size, 1))
    front = shaping.moveaxis(target, place, 0)
    updates = shaping.moveaxis(values, place, 0)
    return shaping.moveaxis(at_vectors(front, rows, updates, how, name), 0, place)


def index_add(x: Any, indices: Any, y: Any, axis: int, use_lock: bool = True, check_index_bound: bool = True) -> Tensor:
    """Add the slices of ``y`` to those along ``axis`` that ``indices`` names; a parameter is changed."""
    result = along(x, axis, indices, y, "add", "index_add")
    return replaced(x, result, "index_add") if isinstance(x, Parameter) and current() is None else result


def inplace_index_add(var: Any, indices: Any, updates: Any, axis: int) -> Tensor:
    """Add the slices of ``updates`` to those of a parameter along ``axis``."""
    return replaced(var, along(var, axis, indices, updates, "add", "inplace_index_add"), "inplace_index_add")


def index_fill(x: Any, axis: Any, index: Any, value: Any) -> Tensor:
    """Return the tensor with ``value`` in the slices along ``axis`` that ``index`` names."""
    tensor = need_tensor(x, "index_fill")
    place = axis_in(int(axis), tensor.ndim, "index_fill")
    shape = list(tensor.shape)
    shape[place] = _indices_of(index, "index_fill").size
    number = as_operand(value, tensor.type.dtype)
    values = shaping.broadcast_to(number if isinstance(number, Tensor) else Tensor.of(number), shape)
    return along(tensor, place, index, values, "none", "index_fill")


def select_scatter(input: Any, src: Any, axis: int, index: int) -> Tensor:
    """Return the tensor with the slice at ``index`` along ``axis`` replaced by ``src``."""
    tensor = need_tensor(input, "select_scatter")
    place = axis_in(axis, tensor.ndim, "select_scatter")
    rows = shaping.expand_dims(src, place)
    return along(tensor, place, [index % tensor.shape[place]], rows, "none", "select_scatter")


def slice_scatter(input: Any, src: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    """Return the tensor with a slice along ``axis`` replaced by ``src``."""
    tensor = need_tensor(input, "slice_scatter")
    place = axis_in(axis, tensor.ndim, "slice_scatter")
    rows = list(builtins.range(*slice(start, end, step).indices(tensor.shape[place])))
    if not rows:
        return tensor
    return along(tensor, place, rows, src, "none", "slice_scatter")


def put_(input: Any, index: Any, source: Any, accumulate: bool = False) -> Tensor:
    """Replace (or add to) the elements of the flattened tensor that ``index`` names."""
    return replaced(input, _put(need_tensor(input, "put_"), index, source, accumulate), "put_")


@on_data
def _put(input: Any, index: Any, source: Any, accumulate: bool) -> Any:
    flat = input.reshape(-1).copy()
    if accumulate:
        np.add.at(flat, index.reshape(-1), source.reshape(-1))
    else:
        flat[index.reshape(-1)] = source.reshape(-1)
    return flat.reshape(input.shape)


@on_data
def index_put(input: Any, indices: Any, values: Any, accumulate: Any = False) -> Any:
    """Return the tensor with ``values`` at the places whose coordinates ``indices`` lists, one tensor an axis."""
    result = input.copy()
    if len(indices) > input.ndim:
        raise ArgumentValueError(f"index_put of {len(indices)} tensors of indices", "give at most one for each axis")
    if accumulate:
        np.add.at(result, tuple(indices), values)
    else:
        result[tuple(indices)] = values
    return result


def _limit(dtype: str, greatest: bool) -> Any:
    kind = float_limits(dtype) if is_float(dtype) else np.iinfo(dtype)
    return kind.max if greatest else kind.min


def _unsorted(how: str, first: Callable[[str], Any], label: str) -> Callable[[Any, Any, int], Tensor]:
    def function(x: Any, segment_ids: Any, num_segments: int) -> Tensor:
        tensor, ids = need_tensor(x, label), need_tensor(segment_ids, label)
        rest, dtype = tensor.shape[ids.ndim :], tensor.type.dtype
        count = int(num_segments)
        empty = Tensor.of(np.full((count + 1, *rest), first(dtype), dtype))
        rows = shaping.reshaped(tensor, (ids.size, *rest))
        places = cast(shaping.reshaped(ids, (ids.size, 1)), "int64")
        inside = shaping.in_range(maximum(places, 0), count)
        places = where(less(places, 0), count, inside)  # what is negative belongs to no segment
        found: Tensor = at_vectors(empty, places, rows, how, label)[:count]  # type: ignore[index]
        return found

    doc = f"Return the rows of each segment reduced by {how}; those without one have its neutral number."
    return named(function, label, doc)


segment_sum, segment_mean = segment("segment_sum", np.sum, 0), segment("segment_mean", np.mean, 0)
segment_prod = segment("segment_prod", np.prod, 1)
segment_max, segment_min = segment("segment_max", np.max, 0), segment("segment_min", np.min, 0)


t = formula("a matrix transposed; vectors as they are",
    of_tensor(lambda input: shaping.transpose(input, (1, 0)) if input.ndim == 2 else input))  # fmt: skip
numel = formula("the number of elements", of_tensor(lambda input: input.size))
column_stack = formula(
    "tensors joined along axis 1; vectors are columns",
    lambda tensors: shaping.concat(
        [shaping.reshaped(item, (item.size, 1)) if item.ndim < 2 else item for item in tensors], 1))  # fmt: skip
dstack = formula("tensors joined along axis 2",
    lambda tensors: shaping.concat([_at_least(item, 3) for item in tensors], 2))  # fmt: skip
row_stack = formula("tensors joined along axis 0; vectors are rows",
    lambda tensors: shaping.concat([_at_least(item, 2) for item in tensors], 0))  # fmt: skip
expand_as = formula("the tensor repeated to the shape of another",
    lambda input, other: shaping.broadcast_to(input, need_tensor(other, "expand_as").shape))  # fmt: skip
view_as = formula("the elements in the shape of another tensor",
    lambda input, other: shaping.reshape(input, need_tensor(other, "view_as").shape))  # fmt: skip
diag = formula("zeros with a tensor on the diagonal: of a vector a matrix, in general twice the axes",
    of_tensor(lambda input: shaping.reshaped(diag_embed(shaping.ravel(input)), input.shape * 2)))  # fmt: skip
diagflat = formula("a matrix with all elements on a diagonal",
    of_tensor(lambda input, offset=0: diag_embed(shaping.ravel(input), offset)))  # fmt: skip
repeat_elements = formula("the tensor with each slice along ``axis`` repeated",
    lambda x, rep, axis=0: shaping.repeat_interleave(x, rep, axis))  # fmt: skip
adjoint = spelled(shaping.swapaxes, "Return the tensor with its last two axes exchanged.", {"axis0": -1, "axis1": -2},
    x="input")  # fmt: skip
swapdims = spelled(shaping.swapaxes, dim0="axis0", dim1="axis1")
atleast_1d, atleast_2d, atleast_3d = (_each_at_least(rank) for rank in (1, 2, 3))
vstack = spelled(row_stack, inputs="tensors")
vsplit = spelled(tensor_split, "Return parts along axis 0.", {"axis": 0})
dsplit = spelled(tensor_split, "Return parts along axis 2.", {"axis": 2})
fliplr = spelled(shaping.flip, "Return the tensor with axis 1 reversed.", {"dims": (1,)})
flipud = spelled(shaping.flip, "Return the tensor with axis 0 reversed.", {"dims": (0,)})
reverse = spelled(shaping.flip, x="input", axis="dims")
matrix_set_diag = formula("matrices with the diagonals ``k`` replaced",
    on_data(lambda x, diagonal, k=0, align="RIGHT_LEFT": _filled(x.copy(), diagonal, k, align)))  # fmt: skip
nonzero = formula("the places of elements that are not 0: a row (int64) each, or with ``as_tuple`` a vector an axis",
    on_data(lambda input, *, as_tuple=False: tuple(np.nonzero(input)) if as_tuple else np.argwhere(input)))  # fmt: skip
argwhere = formula("the places of elements that are not 0, a row (int64) each",
    on_data(lambda input: np.argwhere(input)))  # fmt: skip
invert_permutation = formula("the permutation that undoes another, as a tuple",
    on_data(lambda input_x: tuple(int(place) for place in np.argsort(input_x))))  # fmt: skip
scatter = formula("``tensor_scatter_elements(input, index, src, axis)``",
    lambda input, axis, index, src: tensor_scatter_elements(input, index, src, axis))  # fmt: skip
tensor_scatter_add, tensor_scatter_sub = _tensor_scatter("add"), _tensor_scatter("sub")
tensor_scatter_mul, tensor_scatter_div = _tensor_scatter("mul"), _tensor_scatter("div")
tensor_scatter_max, tensor_scatter_min = _tensor_scatter("max"), _tensor_scatter("min")
scatter_nd_update = _scatter_nd("none", "scatter_nd_update")
scatter_nd_add, scatter_nd_sub = _scatter_nd("add", "scatter_nd_add"), _scatter_nd("sub", "scatter_nd_sub")
scatter_nd_mul, scatter_nd_div = _scatter_nd("mul", "scatter_nd_mul"), _scatter_nd("div", "scatter_nd_div")
scatter_nd_max, scatter_nd_min = _scatter_nd("max", "scatter_nd_max"), _scatter_nd("min", "scatter_nd_min")
scatter_update = _scatter_rows("none", "scatter_update")
scatter_add, scatter_sub = _scatter_rows("add", "scatter_add"), _scatter_rows("sub", "scatter_sub")
scatter_mul, scatter_div = _scatter_rows("mul", "scatter_mul"), _scatter_rows("div", "scatter_div")
scatter_max, scatter_min = _scatter_rows("max", "scatter_max"), _scatter_rows("min", "scatter_min")
scatter_add_with_axis = spelled(tensor_scatter_elements,
    "Return the tensor with elements added at their indices along ``axis``.", {"reduction": "add"},
    update="updates")  # fmt: skip
inplace_update = formula("the tensor with the rows that ``indices`` names replaced by ``v``",
    lambda x, v, indices: along(x, 0, indices, v, "none", "inplace_update"))  # fmt: skip
inplace_add = formula("the tensor with ``v`` added to the rows that ``indices`` names",
    lambda x, v, indices: along(x, 0, indices, v, "add", "inplace_add"))  # fmt: skip
inplace_sub = formula("the tensor with ``v`` subtracted from the rows that ``indices`` names",
    lambda x, v, indices: along(x, 0, indices, v, "sub", "inplace_sub"))  # fmt: skip
unsorted_segment_sum = _unsorted("add", lambda dtype: 0, "unsorted_segment_sum")
unsorted_segment_prod = _unsorted("mul", lambda dtype: 1, "unsorted_segment_prod")
unsorted_segment_max = _unsorted("max", lambda dtype: _limit(dtype, False), "unsorted_segment_max")
unsorted_segment_min = _unsorted("min", lambda dtype: _limit(dtype, True), "unsorted_segment_min")
hsplit = formula("parts along axis 1, of vectors along axis 0",
    of_tensor(lambda input, indices_or_sections:
        tensor_split(input, indices_or_sections, 1 if input.ndim > 1 else 0)))  # fmt: skip
tril_indices = formula("the coordinates of a matrix on and below a diagonal, two rows",
    lambda row, col, offset=0, *, dtype=np.int64:
        Tensor.of(np.array(np.tril_indices(row, offset, col)).astype(to_type(dtype).name)))  # fmt: skip
triu_indices = formula("the coordinates of a matrix on and above a diagonal, two rows",
    lambda row, col, offset=0, *, dtype=np.int64:
        Tensor.of(np.array(np.triu_indices(row, offset, col)).astype(to_type(dtype).name)))  # fmt: skip
bucketize = formula("the number (int32) of the bucket between ``boundaries`` that each element falls into",
    on_data(lambda input, boundaries, *, right=False:
        np.searchsorted(np.asarray(boundaries), input, "right" if right else "left").astype(np.int32)))  # fmt: skip

names.export(vars(), but="""
    along at_vectors diag_part histogram_fixed_width index_put invert_permutation kthvalue list_diff
    masked_scatter replaced scatter_add_with_axis scatter_sub segment segment_max segment_mean segment_min
    segment_prod segment_sum
""")  # fmt: skip
