"""Selection by values, which numpy computes on data, and scatter: elements replaced or combined at given places."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.dtypes import float_limits, is_float
from opbuild.frontend.cell import current
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, axis_in, one_of
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.execution import cast, emit, symbol_of
from opbuild.mindspore.host import need_array, on_data
from opbuild.mindspore.ops.arithmetic import as_operand, div, less, maximum, neg, where
from opbuild.mindspore.ops.declaration import formula, named, need_tensor, spelled
from opbuild.mindspore.ops.gathering import in_range
from opbuild.mindspore.ops.shaping import broadcast_to, expand_dims, moveaxis, reshaped
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.states import need_states
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "argwhere", "bincount", "bucketize", "combinations", "histc", "index_add", "index_fill", "inplace_add",
    "inplace_index_add", "inplace_sub", "inplace_update", "masked_select", "nonzero", "put_", "scatter", "scatter_add",
    "scatter_div", "scatter_max", "scatter_min", "scatter_mul", "scatter_nd_add", "scatter_nd_div", "scatter_nd_max",
    "scatter_nd_min", "scatter_nd_mul", "scatter_nd_sub", "scatter_nd_update", "scatter_update", "searchsorted",
    "select_scatter", "slice_scatter", "tensor_scatter_add", "tensor_scatter_div", "tensor_scatter_elements",
    "tensor_scatter_max", "tensor_scatter_min", "tensor_scatter_mul", "tensor_scatter_sub", "unique",
    "unique_consecutive", "unique_with_pad", "unsorted_segment_max", "unsorted_segment_min", "unsorted_segment_prod",
    "unsorted_segment_sum",
]  # fmt: skip

nonzero = formula(
    "nonzero", "the places of elements that are not 0: a row (int64) each, or with ``as_tuple`` a vector an axis",
    on_data(lambda input, *, as_tuple=False: tuple(np.nonzero(input)) if as_tuple else np.argwhere(input)),
)  # fmt: skip
argwhere = formula("argwhere", "the places of elements that are not 0, a row (int64) each",
                   on_data(lambda input: np.argwhere(input)))  # fmt: skip
invert_permutation = formula("invert_permutation", "the permutation that undoes another, as a tuple",
                             on_data(lambda input_x: tuple(int(place) for place in np.argsort(input_x))))  # fmt: skip


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


@on_data
def unique(input: Any) -> Any:
    """Return the different elements in the order of their first appearance, and each element's index among them."""
    flat = input.reshape(-1)
    values, first, inverse = np.unique(flat, return_index=True, return_inverse=True)
    order = np.argsort(first)
    places = np.argsort(order)[inverse.reshape(-1)].reshape(input.shape)
    return values[order], places.astype(np.int64 if input.dtype == np.int64 else np.int32)


@on_data
def unique_with_pad(x: Any, pad_num: Any) -> Any:
    """Return ``unique`` of a vector, filled up with ``pad_num`` to its length."""
    values, first, inverse = np.unique(x, return_index=True, return_inverse=True)
    order = np.argsort(first)
    padded = np.full(x.shape, pad_num, x.dtype)
    padded[: len(values)] = values[order]
    return padded, np.argsort(order)[inverse.reshape(-1)].astype(x.dtype)


@on_data
def unique_consecutive(
    input: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Return the elements (or slices along ``dim``) without those equal to the one before.

    Args:
        input: A tensor.
        return_inverse: Return the place of each element among the results too.
        return_counts: Return how often each result repeats too.
        dim: None for the flattened tensor.
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
def searchsorted(
    sorted_sequence: Any, values: Any, *, out_int32: bool = False, right: bool = False, side: Any = None,
    sorter: Any = None,
) -> Any:  # fmt: skip
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
def bucketize(input: Any, boundaries: Any, *, right: bool = False) -> Any:
    """Return the number (int32) of the bucket between ``boundaries`` that each element falls into."""
    return np.searchsorted(np.asarray(boundaries), input, "right" if right else "left").astype(np.int32)


@on_data
def kthvalue(input: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the ``k``-th smallest element along ``dim`` and its index (int64)."""
    places = np.take(np.argsort(input, dim, kind="stable"), [k - 1], dim)
    values = np.take_along_axis(input, places, dim)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


@on_data
def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Any:
    """Return all choices of ``r`` elements of a vector, a row each."""
    import itertools

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


scatter = formula("scatter", "``tensor_scatter_elements(input, index, src, axis)``",
                  lambda input, axis, index, src: tensor_scatter_elements(input, index, src, axis))  # fmt: skip


def _places(value: Any, name: str) -> Tensor:
    tensor = Tensor(value) if isinstance(value, (int, list, tuple)) else need_tensor(value, name)
    return cast(tensor, "int64")


def at_vectors(tensor: Any, indices: Any, updates: Any, how: str, name: str) -> Tensor:
    """Return the tensor with ``updates`` combined at the places that the vectors of ``indices`` name."""
    target, values = need_tensor(tensor, name), need_tensor(updates, name)
    places = _places(indices, name)
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


tensor_scatter_add, tensor_scatter_sub = _tensor_scatter("add"), _tensor_scatter("sub")
tensor_scatter_mul, tensor_scatter_div = _tensor_scatter("mul"), _tensor_scatter("div")
tensor_scatter_max, tensor_scatter_min = _tensor_scatter("max"), _tensor_scatter("min")


def replaced(target: Any, result: Tensor, name: str) -> Tensor:
    """Give a parameter or tensor the elements of ``result`` and return it.

    Raises:
        ArgumentTypeError: While a network is traced, if it is no parameter and not of this network.
    """
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


scatter_nd_update = _scatter_nd("none", "scatter_nd_update")
scatter_nd_add, scatter_nd_sub = _scatter_nd("add", "scatter_nd_add"), _scatter_nd("sub", "scatter_nd_sub")
scatter_nd_mul, scatter_nd_div = _scatter_nd("mul", "scatter_nd_mul"), _scatter_nd("div", "scatter_nd_div")
scatter_nd_max, scatter_nd_min = _scatter_nd("max", "scatter_nd_max"), _scatter_nd("min", "scatter_nd_min")


def _scatter_rows(how: str, label: str) -> Callable[..., Tensor]:
    def function(input_x: Any, indices: Any, updates: Any) -> Tensor:
        rows = expand_dims(_places(indices, label), -1)
        return replaced(input_x, at_vectors(input_x, rows, updates, how, label), label)

    doc = f"Combine ({label[8:]}) ``updates`` into the rows of a parameter that ``indices`` names."
    return named(function, label, doc)


scatter_update = _scatter_rows("none", "scatter_update")
scatter_add, scatter_sub = _scatter_rows("add", "scatter_add"), _scatter_rows("sub", "scatter_sub")
scatter_mul, scatter_div = _scatter_rows("mul", "scatter_mul"), _scatter_rows("div", "scatter_div")
scatter_max, scatter_min = _scatter_rows("max", "scatter_max"), _scatter_rows("min", "scatter_min")


def tensor_scatter_elements(input_x: Any, indices: Any, updates: Any, axis: int = 0, reduction: str = "none") -> Tensor:
    """Return the tensor with each element of ``updates`` at its own place, but at its index along ``axis``."""
    tensor = need_tensor(input_x, "scatter")
    one_of(reduction, ("none", "add", "mul", "max", "min"), "the reduction")
    places = _places(indices, "scatter")
    values = updates if isinstance(updates, Tensor) else Tensor.of(np.full(places.shape, updates, tensor.type.dtype))
    if values.shape != places.shape:  # the first elements of a larger source are taken
        values = values[tuple(slice(extent) for extent in places.shape)]  # type: ignore[index]
    place = axis_in(axis, tensor.ndim, "scatter")
    return emit("ScatterElements", tensor, places, cast(values, tensor.type.dtype), axis=place, reduction=reduction)


scatter_add_with_axis = spelled(
    tensor_scatter_elements, "scatter_add_with_axis",
    "Return the tensor with elements added at their indices along ``axis``.", {"reduction": "add"}, update="updates",
)  # fmt: skip


def along(tensor: Any, axis: int, index: Any, values: Any, how: str, name: str) -> Tensor:
    """Return the tensor with slices along ``axis`` replaced by, or combined with, those of ``values``."""
    target = need_tensor(tensor, name)
    place = axis_in(axis, target.ndim, name)
    places = _places(index, name)
    rows = reshaped(places, (places.size, 1))
    front = moveaxis(target, place, 0)
    updates = moveaxis(values, place, 0)
    return moveaxis(at_vectors(front, rows, updates, how, name), 0, place)


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
    shape[place] = _places(index, "index_fill").size
    number = as_operand(value, tensor.type.dtype)
    values = broadcast_to(number if isinstance(number, Tensor) else Tensor.of(number), shape)
    return along(tensor, place, index, values, "none", "index_fill")


def _inplace(how: str, name: str, what: str) -> Callable[[Any, Any, Any], Tensor]:
    def function(x: Any, v: Any, indices: Any) -> Tensor:
        return along(x, 0, indices, v, how, name)

    return formula(name, f"the tensor with {what}", function)


inplace_update = _inplace("none", "inplace_update", "the rows that ``indices`` names replaced by ``v``")
inplace_add = _inplace("add", "inplace_add", "``v`` added to the rows that ``indices`` names")
inplace_sub = _inplace("sub", "inplace_sub", "``v`` subtracted from the rows that ``indices`` names")


def select_scatter(input: Any, src: Any, axis: int, index: int) -> Tensor:
    """Return the tensor with the slice at ``index`` along ``axis`` replaced by ``src``."""
    tensor = need_tensor(input, "select_scatter")
    place = axis_in(axis, tensor.ndim, "select_scatter")
    return along(tensor, place, [index % tensor.shape[place]], expand_dims(src, place), "none", "select_scatter")


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
    return replaced(input, _put(input, index, source, accumulate), "put_")


@on_data
def _put(input: Any, index: Any, source: Any, accumulate: bool) -> Any:
    flat = need_array(input, "put_").reshape(-1).copy()
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


segment_sum, segment_mean = segment("segment_sum", np.sum, 0), segment("segment_mean", np.mean, 0)
segment_prod = segment("segment_prod", np.prod, 1)
segment_max, segment_min = segment("segment_max", np.max, 0), segment("segment_min", np.min, 0)


def _limit(dtype: str, greatest: bool) -> Any:
    kind = float_limits(dtype) if is_float(dtype) else np.iinfo(dtype)
    return kind.max if greatest else kind.min


def _unsorted(how: str, first: Callable[[str], Any], label: str) -> Callable[[Any, Any, int], Tensor]:
    def function(x: Any, segment_ids: Any, num_segments: int) -> Tensor:
        tensor, ids = need_tensor(x, label), need_tensor(segment_ids, label)
        rest, dtype = tensor.shape[ids.ndim :], tensor.type.dtype
        count = int(num_segments)
        empty = Tensor.of(np.full((count + 1, *rest), first(dtype), dtype))
        rows = reshaped(tensor, (ids.size, *rest))
        places = cast(reshaped(ids, (ids.size, 1)), "int64")
        inside = in_range(maximum(places, 0), count)
        places = where(less(places, 0), count, inside)  # what is negative belongs to no segment
        found: Tensor = at_vectors(empty, places, rows, how, label)[:count]  # type: ignore[index]
        return found

    doc = f"Return the rows of each segment reduced by {how}; those without one have its neutral number."
    return named(function, label, doc)


unsorted_segment_sum = _unsorted("add", lambda dtype: 0, "unsorted_segment_sum")
unsorted_segment_prod = _unsorted("mul", lambda dtype: 1, "unsorted_segment_prod")
unsorted_segment_max = _unsorted("max", lambda dtype: _limit(dtype, False), "unsorted_segment_max")
unsorted_segment_min = _unsorted("min", lambda dtype: _limit(dtype, True), "unsorted_segment_min")
