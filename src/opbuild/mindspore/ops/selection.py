"""Selection by values: what comes out depends on the data, so numpy computes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.dtypes import is_float
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.host import on_data
from opbuild.mindspore.ops.declaration import formula

__all__ = [
    "argwhere", "bincount", "bucketize", "combinations", "histc", "masked_select", "nonzero", "searchsorted",
    "unique", "unique_consecutive", "unique_with_pad",
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
    """Return how often each integer from 0 on appears (float32), or the sums of its weights."""
    result = np.bincount(input, weights, minlength)
    return result.astype(weights.dtype if weights is not None and is_float(weights.dtype.name) else np.float32)


@on_data
def histc(input: Any, bins: int = 100, min: float = 0.0, max: float = 0.0) -> Any:
    """Return how many elements fall into each of equal parts from ``min`` to ``max``; the data's, if both are equal."""
    low, high = (input.min(), input.max()) if min == max else (min, max)
    counts = np.histogram(input.astype(np.float64), bins, (low - (low == high), high + (low == high)))[0]
    return counts.astype(np.float32 if is_float(input.dtype.name) else np.int32)


@on_data
def histogram_fixed_width(x: Any, range: Any, nbins: int) -> Any:
    """Return how many elements fall into each of ``nbins`` equal parts of a range; those beyond it into the outer."""
    low, high = (float(item) for item in range)
    places = np.floor((x.astype(np.float64) - low) / (high - low) * nbins)
    return np.bincount(np.clip(places, 0, nbins - 1).astype(np.int64).reshape(-1), minlength=nbins).astype(np.int32)


@on_data
def searchsorted(
    sorted_sequence: Any, values: Any, *, out_int32: bool = False, right: bool = False, side: Any = None,
    sorter: Any = None,
) -> Any:  # fmt: skip
    """Return where each value would be inserted so that the sequence stays in order."""
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
