"""Functions of ``mindspore.numpy`` that numpy itself computes, on data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.mindspore import ops
from opbuild.mindspore.host import on_data
from opbuild.mindspore.tensor import Tensor


def _plain(name: str, kind: Any = None, of_floats: Any = np.float32) -> Callable[..., Any]:
    """Return numpy's function on data.

    Args:
        name: Its name.
        kind: The element type of the result if it is of integers.
        of_floats: The element type of the result if it is of floats in float64.
    """
    function = getattr(np, name)

    def narrowed(result: Any) -> Any:
        if isinstance(result, (tuple, list)):
            return type(result)(narrowed(each) for each in result)
        array = np.asarray(result)
        if array.dtype == np.float64 and of_floats is not None:
            return array.astype(of_floats)
        return array.astype(kind) if array.dtype.kind in "iu" and kind is not None else array

    def computed(*args: Any, **named: Any) -> Any:
        return narrowed(function(*args, **named))

    computed.__name__ = computed.__qualname__ = name
    computed.__doc__ = f"Return numpy's ``{name}``."
    return on_data(computed)


def _histogram(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    @on_data
    def computed(*args: Any, **named: Any) -> Any:
        counts, *edges = function(*args, **named)
        if name == "histogramdd":
            return counts.astype(np.float32), [np.asarray(edge, np.float32) for edge in edges[0]]
        return (counts.astype(np.float32), *(np.asarray(edge, np.float32) for edge in edges))

    return computed


def _apply_along(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the results of a function of each vector along ``axis``."""
    place = axis % arr.ndim
    front = ops.moveaxis(arr, place, -1)
    rows = ops.reshape(front, (-1, front.shape[-1]))
    results = [func1d(row, *args, **kwargs) for row in rows]
    stacked = ops.stack([each if isinstance(each, Tensor) else Tensor(each) for each in results])
    whole = ops.reshape(stacked, (*front.shape[:-1], *stacked.shape[1:]))
    return whole if stacked.ndim == 1 else ops.moveaxis(whole, -1, place)


def _apply_over(func: Any, a: Any, axes: Any) -> Any:
    """Return a function applied over several axes, one after the other, which stay with extent 1."""
    for axis in (axes,) if isinstance(axes, int) else axes:
        result = func(a, axis)
        a = result if result.ndim == a.ndim else ops.expand_dims(result, axis)
    return a


def _kind(number: Any) -> Any:
    return np.float32 if isinstance(number, float) else np.int32


def _piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """Return, at each element, the function whose condition is true."""
    conditions = list(condlist) if isinstance(condlist, (list, tuple)) else [condlist]
    results = [
        each(x, *args, **kw) if callable(each) else ops.full(x.shape, each, dtype=_kind(each)) for each in funclist
    ]
    chosen = results.pop() if len(results) == len(conditions) + 1 else ops.zeros_like(results[0])
    for condition, result in zip(conditions, results, strict=True):
        chosen = ops.where(condition, result, chosen)
    return chosen


def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """Return the element of the first choice whose condition is true."""
    choices = [each if isinstance(each, Tensor) else Tensor(each) for each in choicelist]
    chosen: Any = ops.full_like(choices[0], default)
    for condition, choice in reversed(list(zip(condlist, choices, strict=True))):
        chosen = ops.where(condition if isinstance(condition, Tensor) else Tensor(condition), choice, chosen)
    return chosen


def _unique(x: Any, return_inverse: bool = False) -> Any:
    """Return the different elements in the order of their first appearance, and each element's index among them."""
    values, places = ops.unique(x)
    return (values, ops.ravel(places)) if return_inverse else values


@on_data
def _intersect(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    found = np.intersect1d(ar1, ar2, assume_unique, True)
    return (found[0], *(each.astype(np.int32) for each in found[1:])) if return_indices else found[0]


@on_data
def _choose(a: Any, choices: Any, mode: Any = "clip") -> Any:
    return np.choose(a, choices, mode=mode)


@on_data
def _ravel_multi(multi_index: Any, dims: Any, mode: Any = "clip", order: Any = "C") -> Any:
    return np.asarray(np.ravel_multi_index(tuple(multi_index), dims, mode, order)).astype(np.float32)


@on_data
def _correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    return np.correlate(a, v, mode).astype(np.result_type(a, v) if np.result_type(a, v) != np.float64 else np.float32)


def _equivalent(a1: Any, a2: Any) -> Any:
    try:
        return Tensor(bool(ops.all(ops.equal(Tensor(a1), Tensor(a2)))))
    except ValueError:
        return Tensor(False)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _plain(name) for name in (
        "convolve", "corrcoef", "cov", "cross", "ediff1d", "gradient", "histogram_bin_edges", "interp", "polyadd",
        "polyder", "polyint", "polymul", "polysub", "polyval", "unwrap", "setdiff1d")},
    **{name: _plain(name, np.int32) for name in ("digitize", "searchsorted")},
    **{name: _plain(name, np.int64) for name in ("argwhere", "isin", "unravel_index")},
    **{name: _histogram(name) for name in ("histogram", "histogram2d", "histogramdd")},
    "apply_along_axis": _apply_along, "apply_over_axes": _apply_over, "array_equiv": _equivalent,
    "bincount": lambda x, weights=None, minlength=0, length=None: ops.bincount(
        x, weights, length or minlength),
    "choose": _choose, "correlate": _correlate, "intersect1d": _intersect, "piecewise": _piecewise,
    "ravel_multi_index": _ravel_multi, "select": _select, "unique": _unique,
}  # fmt: skip
FUNCTIONS["in1d"] = FUNCTIONS["isin"]
