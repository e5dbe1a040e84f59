"""Elementwise functions and reductions of ``mindspore.numpy``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from opbuild.mindspore import ops
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.ops import matrices, reduction
from opbuild.mindspore.ops.reduction import reduce
from opbuild.mindspore.tensor import Tensor


def tensor(value: Any) -> Tensor:
    """Return a tensor of anything that numpy would take as an array."""
    return value if isinstance(value, Tensor) else Tensor(value)


def typed(result: Any, dtype: Any) -> Any:
    """Return a tensor in an element type, if one is given."""
    return result if dtype is None else ops.cast(result, to_type(dtype))


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, dtype=None: typed(function(tensor(x)), dtype)


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x1, x2, dtype=None: typed(function(tensor(x1), x2 if _number(x2) else tensor(x2)), dtype)


def _number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def _signed(name: str) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        value = tensor(x)
        return getattr(ops, name)(value if value.is_floating_point() else ops.cast(value, to_type("float32")))

    return function


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, axis=None, keepdims=False, initial=None, where=True: function(tensor(a), axis, keepdims)


def _cube_root(x: Tensor) -> Any:
    return ops.mul(ops.sign(x), ops.pow(ops.abs(ops.mul(x, 1.0)), 1 / 3))


def _sum(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    """Return the sum over ``axis``, in the element type of the tensor."""
    value = typed(tensor(a), dtype)
    value = ops.cast(value, to_type("int32")) if value.type.dtype == "bool" else value
    result = reduce("ReduceSum", value, axis, keepdims)
    return result if initial is None else ops.add(result, initial)


def _mean(a: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """Return the mean over ``axis``."""
    value = tensor(a)
    value = value if value.is_floating_point() else ops.cast(value, to_type("float32"))
    return typed(ops.mean(value, axis, keepdims), dtype)


def _average(x: Any, axis: Any = None, weights: Any = None, returned: bool = False) -> Any:
    """Return the mean over ``axis``, weighted."""
    value = tensor(x)
    if weights is None:
        result, total = _mean(value, axis), None
    else:
        weight = tensor(weights)
        if weight.ndim == 1 and value.ndim > 1:
            shape = [1] * value.ndim
            shape[axis] = weight.size
            weight = ops.broadcast_to(ops.reshape(weight, tuple(shape)), value.shape)
        total = ops.sum(weight, axis)
        result = ops.div(ops.sum(ops.mul(value, weight), axis), total)
    if not returned:
        return result
    count = value.size if axis is None else value.shape[axis]
    return result, total if total is not None else ops.full_like(result, float(count))


def _nan(function: Callable[..., Any], fill: float) -> Callable[..., Any]:
    def reduced(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        value = typed(tensor(a), dtype)
        value = ops.where(ops.isnan(value), fill, value) if value.is_floating_point() else value
        return function(value, axis, keepdims)

    return reduced


def _nan_var(a: Any, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    """Return the variance over ``axis`` of the elements that are not NaN."""
    value = typed(tensor(a), dtype)
    there = ops.cast(ops.logical_not(ops.isnan(value)), value.dtype)
    count = ops.sum(there, axis, True)
    kept = ops.where(ops.isnan(value), 0.0, value)
    mean = ops.div(ops.sum(kept, axis, True), count)
    spread = ops.sum(ops.mul(ops.square(ops.sub(kept, mean)), there), axis, keepdims)
    return ops.div(spread, ops.sub(ops.sum(there, axis, keepdims), float(ddof)))


def _all_equal(first: Tensor, second: Tensor) -> Any:
    return Tensor(False) if first.shape != second.shape else ops.all(ops.equal(first, second))


_SAME_UNARY = """
    abs absolute arccos arccosh arcsin arcsinh arctan arctanh bitwise_not cos cosh deg2rad exp exp2 expm1 invert
    isfinite isinf isnan log log10 log1p log2 logical_not negative positive rad2deg reciprocal sign signbit sin sinh
    sqrt square tan tanh
"""
_SAME_BINARY = """
    add arctan2 bitwise_and bitwise_or bitwise_xor copysign divide equal floor_divide fmod gcd greater greater_equal
    heaviside lcm less less_equal logaddexp logaddexp2 logical_and logical_or logical_xor matmul maximum minimum
    multiply not_equal remainder subtract true_divide
"""
"""Functions that ``ops`` has under the same name."""

_UNARY = {
    **{name: getattr(ops, name) for name in _SAME_UNARY.split()},
    "cbrt": _cube_root, "ceil": _signed("ceil"), "fabs": _signed("abs"), "floor": _signed("floor"),
    "radians": ops.deg2rad, "rint": _signed("round"), "trunc": _signed("trunc"),
}  # fmt: skip

_BINARY = {
    **{name: getattr(ops, name) for name in _SAME_BINARY.split()},
    "divmod": lambda x1, x2: (ops.floor_divide(x1, x2), ops.floor_mod(x1, x2)),
    "float_power": lambda x1, x2: ops.pow(ops.mul(x1, 1.0), x2),
    "hypot": lambda x1, x2: ops.sqrt(ops.add(ops.square(ops.mul(x1, 1.0)), ops.square(ops.mul(x2, 1.0)))),
    "mod": ops.floor_mod, "power": ops.pow,
}  # fmt: skip

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _unary(function) for name, function in _UNARY.items()},
    **{name: _binary(function) for name, function in _BINARY.items()},
    "amax": _reduced(ops.amax), "amin": _reduced(ops.amin), "max": _reduced(ops.amax), "min": _reduced(ops.amin),
    "argmax": lambda a, axis=None: ops.cast(ops.argmax(tensor(a), axis), to_type("int32")),
    "argmin": lambda a, axis=None: ops.argmin(tensor(a), axis),
    "array_equal": lambda a1, a2, equal_nan=False: _all_equal(tensor(a1), tensor(a2)),
    "average": _average,
    "clip": lambda x, xmin, xmax, dtype=None: typed(ops.clip(tensor(x), xmin, xmax), dtype),
    "count_nonzero": lambda x, axis=None, keepdims=False: ops.count_nonzero(
        tensor(x), () if axis is None else axis, keepdims),
    "cumprod": lambda a, axis=None, dtype=None: typed(
        ops.cumprod(ops.ravel(a) if axis is None else a, axis or 0), dtype),
    "cumsum": lambda a, axis=None, dtype=None: ops.cumsum(ops.ravel(a) if axis is None else a, axis or 0, dtype),
    "dot": lambda a, b: ops.dot(tensor(a), tensor(b)),
    "fix": lambda x: ops.trunc(tensor(x)),
    "inner": lambda a, b: ops.inner(tensor(a), tensor(b)),
    "isclose": lambda a, b, rtol=1e-05, atol=1e-08, equal_nan=False: ops.isclose(
        tensor(a), tensor(b), rtol, atol, equal_nan),
    "isneginf": lambda x: ops.isneginf(tensor(x)),
    "isposinf": lambda x: ops.isposinf(tensor(x)),
    "kron": lambda a, b: ops.kron(tensor(a), tensor(b)),
    "mean": _mean,
    "multi_dot": lambda arrays: functools.reduce(ops.matmul, map(tensor, arrays)),
    "nancumsum": lambda a, axis=None, dtype=None: FUNCTIONS["cumsum"](ops.where(ops.isnan(a), 0.0, a), axis, dtype),
    "nanmax": _nan(ops.amax, -math.inf), "nanmin": _nan(ops.amin, math.inf),
    "nanmean": lambda a, axis=None, dtype=None, keepdims=False: ops.nanmean(tensor(a), axis, keepdims, dtype=dtype),
    "nanstd": lambda a, axis=None, dtype=None, ddof=0, keepdims=False: ops.sqrt(
        _nan_var(a, axis, dtype, ddof, keepdims)),
    "nansum": _nan(lambda value, axis, keepdims: _sum(value, axis, None, keepdims), 0.0),
    "nanvar": _nan_var,
    "norm": lambda x, ord=None, axis=None, keepdims=False: matrices.norm(tensor(x), ord, axis, keepdims),
    "outer": lambda a, b: ops.outer(ops.ravel(tensor(a)), ops.ravel(tensor(b))),
    "ptp": lambda x, axis=None, keepdims=False: reduction.ptp(tensor(x), axis, keepdims),
    "sometrue": lambda a, axis=None, keepdims=False: ops.any(tensor(a), axis, keepdims),
    "std": lambda x, axis=None, ddof=0, keepdims=False: ops.std(tensor(x), axis, ddof, keepdims),
    "sum": _sum,
    "tensordot": lambda a, b, axes=2: ops.tensor_dot(tensor(a), tensor(b), axes),
    "trapz": lambda y, x=None, dx=1.0, axis=-1: ops.trapz(tensor(y), x, dx=dx, dim=axis),
    "var": lambda x, axis=None, ddof=0, keepdims=False: ops.var(tensor(x), axis, ddof, keepdims),
}  # fmt: skip
