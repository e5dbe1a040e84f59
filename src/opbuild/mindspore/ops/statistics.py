"""More reductions and running functions: medians, quantiles, differences, sums without NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.mindspore.arguments import axis_in
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.host import in_floats, on_data
from opbuild.mindspore.ops.arithmetic import add, div, exp, log, mul, sub
from opbuild.mindspore.ops.comparison import equal, isnan, logical_not, where
from opbuild.mindspore.ops.declaration import floating, formula, named, need_tensor, of_tensor
from opbuild.mindspore.ops.linear import matmul
from opbuild.mindspore.ops.reduction import Axis, amax, amin, mean, reduce, sort, std, topk, var
from opbuild.mindspore.ops.reduction import any as any_of
from opbuild.mindspore.ops.reduction import sum as total
from opbuild.mindspore.ops.shaping import concat, cut, expand_dims, reshaped, squeeze, swapaxes
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "aminmax", "cov", "cummax", "cummin", "cumprod", "diff", "intopk", "logcumsumexp", "median", "msort", "nanmean",
    "nanmedian", "nanquantile", "nansum", "quantile", "reduce_max", "reduce_mean", "reduce_min", "reduce_sum",
    "std_mean", "top_k", "trapz", "var_mean",
]  # fmt: skip

reduce_sum = formula("reduce_sum", "the sum over ``axis``, in the element type of the tensor",
                     of_tensor(lambda x, axis=(): reduce("ReduceSum", x, axis, False)))  # fmt: skip
aminmax = formula(
    "aminmax", "the smallest and the greatest element over ``axis``",
    lambda input, *, axis=0, keepdims=False: (amin(input, axis, keepdims), amax(input, axis, keepdims)),
)  # fmt: skip
ptp = formula(
    "ptp", "the greatest less the smallest element over ``axis``",
    lambda input, axis=None, keepdims=False: sub(amax(input, axis, keepdims), amin(input, axis, keepdims)),
)  # fmt: skip
msort = formula("msort", "the elements in order along axis 0", lambda input: sort(input, 0)[0])
top_k = formula("top_k", "the ``k`` greatest elements along the last axis and their indices (int32)",
                lambda input_x, k, sorted=True: topk(input_x, k, None, True, sorted))  # fmt: skip
quantile = formula(
    "quantile", "the elements at the shares ``q`` of the order along ``axis``, interpolated",
    in_floats(lambda input, q, axis=None, keepdims=False: np.quantile(input, q, axis, keepdims=keepdims)),
)  # fmt: skip
nanquantile = formula(
    "nanquantile", "``quantile`` of the elements that are not NaN",
    in_floats(lambda input, q, axis=None, keepdims=False: np.nanquantile(input, q, axis, keepdims=keepdims)),
)  # fmt: skip


def _over(name: str, function: Callable[..., Tensor], what: str) -> Callable[..., Tensor]:
    def reduced(x: Any, axis: Axis = ()) -> Tensor:
        return function(x, axis)

    return formula(name, f"the {what} over ``axis``", reduced)


reduce_mean, reduce_max = _over("reduce_mean", mean, "mean"), _over("reduce_max", amax, "greatest element")
reduce_min = _over("reduce_min", amin, "smallest element")


def _with_mean(name: str, function: Callable[..., Tensor], what: str) -> Callable[..., tuple[Tensor, Tensor]]:
    def both(input: Any, axis: Axis = None, ddof: int | bool = 0, keepdims: bool = False) -> tuple[Tensor, Tensor]:
        return function(input, axis, ddof, keepdims), mean(floating(input, name), axis, keepdims)

    return formula(name, f"the {what} and the mean over ``axis``", both)


std_mean, var_mean = _with_mean("std_mean", std, "standard deviation"), _with_mean("var_mean", var, "variance")


def median(input: Any, axis: int = -1, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """Return the middle element in order along ``axis`` (of two the smaller) and its index (int64)."""
    tensor = need_tensor(input, "median")
    if tensor.ndim == 0:
        return tensor, Tensor.of(np.zeros((), np.int64))
    place = axis_in(axis, tensor.ndim, "median")
    values, indices = sort(tensor, place)
    middle = (tensor.shape[place] - 1) // 2
    parts = [cut(item, [middle], [middle + 1], [place], [1]) for item in (values, cast(indices, "int64"))]
    return (parts[0], parts[1]) if keepdims else (squeeze(parts[0], place), squeeze(parts[1], place))


@on_data
def nanmedian(input: Any, axis: int = -1, keepdims: bool = False) -> Any:
    """Return the middle element in order along ``axis`` without NaN (of two the smaller) and its index (int64)."""
    order = np.argsort(input, axis, kind="stable")
    count = np.maximum((~np.isnan(input)).sum(axis, keepdims=True), 1)
    places = np.take_along_axis(order, (count - 1) // 2, axis)
    values = np.take_along_axis(input, places, axis)
    return (values, places) if keepdims else (values.squeeze(axis), places.squeeze(axis))


def _without_nan(tensor: Tensor) -> Tensor:
    return where(isnan(tensor), 0.0, tensor) if tensor.is_floating_point() else tensor


def nansum(input: Any, axis: Axis = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the sum over ``axis`` of the elements that are not NaN."""
    return total(_without_nan(need_tensor(input, "nansum")), axis, keepdims, dtype=dtype)


def nanmean(input: Any, axis: Axis = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the mean over ``axis`` of the elements that are not NaN."""
    tensor = floating(input, "nanmean")
    count = reduce("ReduceSum", cast(logical_not(isnan(tensor)), tensor.type.dtype), axis, keepdims)
    result = div(reduce("ReduceSum", _without_nan(tensor), axis, keepdims), count)
    return result if dtype is None else cast(result, to_type(dtype).name)


def _running(name: str, first: Any, kind: type) -> Any:
    @on_data
    def function(input: Any, axis: int) -> Any:
        values = first.accumulate(input, axis)
        extent = input.shape[axis]
        numbers = np.arange(extent).reshape([-1 if i == axis % input.ndim else 1 for i in range(input.ndim)])
        places = np.maximum.accumulate(np.where(input == values, numbers, -1), axis)
        return values, places.astype(kind)

    doc = f"Return the running {'greatest' if name == 'cummax' else 'smallest'} elements and their places."
    return named(function, name, doc)


cummax, cummin = _running("cummax", np.maximum, np.int64), _running("cummin", np.minimum, np.int32)


def cumprod(input: Any, dim: int, dtype: Any = None) -> Tensor:
    """Return the running products along ``dim``."""
    tensor = need_tensor(input, "cumprod")
    tensor = tensor if dtype is None else cast(tensor, to_type(dtype).name)
    return emit("CumProd", tensor, np.asarray(axis_in(dim, tensor.ndim, "cumprod"), np.int64))


def logcumsumexp(input: Any, axis: int) -> Tensor:
    """Return the logarithms of the running sums of ``exp(input)`` along ``axis``."""
    tensor = need_tensor(input, "logcumsumexp")
    place = axis_in(axis, tensor.ndim, "logcumsumexp")
    high = reduce("ReduceMax", tensor, place, True)
    running = emit("CumSum", exp(sub(tensor, high)), np.asarray(place, np.int64))
    return add(log(running), high)


def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """Return the differences of neighbours along ``axis``, ``n`` times."""
    tensor = need_tensor(x, "diff")
    place = axis_in(axis, tensor.ndim, "diff")
    parts = [item for item in (prepend, tensor, append) if item is not None]
    tensor = concat(parts, place) if len(parts) > 1 else tensor
    for _ in range(n):
        extent = tensor.shape[place]
        after, before = cut(tensor, [1], [extent], [place], [1]), cut(tensor, [0], [extent - 1], [place], [1])
        tensor = sub(after, before)
    return tensor


def trapz(y: Any, x: Any = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """Return the integral along ``dim`` by the trapezoidal rule, at the points ``x`` or at steps of ``dx``."""
    tensor = floating(y, "trapz")
    place = axis_in(dim, tensor.ndim, "trapz")
    extent = tensor.shape[place]
    after, before = cut(tensor, [1], [extent], [place], [1]), cut(tensor, [0], [extent - 1], [place], [1])
    step: Any = dx
    if x is not None:
        points = need_tensor(x, "trapz")
        step = diff(points, 1, 0 if points.ndim == 1 else place)
        if points.ndim == 1:
            step = reshaped(step, tuple(extent - 1 if axis == place else 1 for axis in range(tensor.ndim)))
    return reduce("ReduceSum", div(mul(step, add(after, before)), 2.0), place, False)


def cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Tensor:
    """Return the covariances of variables, which are rows; a column is an observation."""
    tensor = floating(input, "cov")
    table = tensor if tensor.ndim == 2 else reshaped(tensor, (1, tensor.size))
    weights = None
    for item in (fweights, aweights):
        if item is not None:
            weight = cast(need_tensor(item, "cov"), table.type.dtype)
            weights = weight if weights is None else mul(weights, weight)
    if weights is None:
        count: Any = float(table.shape[1])
        centred = sub(table, mean(table, 1, True))
        result = div(matmul(centred, swapaxes(centred, 0, 1)), max(count - correction, 0.0))
    else:
        whole = reduce("ReduceSum", weights, None, False)
        centre = div(reduce("ReduceSum", mul(table, weights), 1, True), whole)
        centred = sub(table, centre)
        lost: Any = float(correction)
        if aweights is not None and correction:
            squares = reduce("ReduceSum", mul(weights, cast(aweights, table.type.dtype)), None, False)
            lost = mul(div(squares, whole), float(correction))
        result = div(matmul(mul(centred, weights), swapaxes(centred, 0, 1)), sub(whole, lost))
    return result if tensor.ndim == 2 else reshaped(result, ())


def intopk(x1: Any, x2: Any, k: int) -> Tensor:
    """Return whether the class ``x2`` names is among the ``k`` greatest of each row of ``x1``."""
    found = topk(x1, k)[1]
    return any_of(equal(found, expand_dims(cast(x2, "int32"), -1)), -1)
