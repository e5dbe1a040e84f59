"""Gives ``Tensor`` its operators and methods, from the functions of ``ops``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opbuild.mindspore import ops
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.indexing import get_item, set_item
from opbuild.mindspore.ops.shaping import ints
from opbuild.mindspore.tensor import Tensor

_SAME = [
    "abs", "absolute", "acos", "acosh", "add", "addcdiv", "addcmul", "addmm", "amax", "amin", "arccos", "arccosh",
    "arcsin", "arcsinh", "arctan", "arctanh", "argmin", "argsort", "asin", "asinh", "atan", "atan2", "atanh",
    "baddbmm", "bitwise_and", "bitwise_or", "bitwise_xor", "bmm", "broadcast_to", "ceil", "chunk", "clamp",
    "clip", "cos", "cosh", "cumsum", "div", "divide", "dot", "eq", "equal", "erf", "erfc", "exp", "expand_dims",
    "expm1", "flip", "floor", "floor_divide", "fmod", "gather_elements", "gather_nd", "ge", "ger", "greater",
    "greater_equal", "gt", "hardshrink", "hypot", "index_select", "inner", "isclose", "isfinite", "isinf",
    "isnan", "le", "lerp", "less", "less_equal", "log", "log10", "log1p", "log2", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logsumexp", "lt", "masked_fill", "matmul", "maximum", "minimum",
    "mm", "moveaxis", "movedim", "mul", "multiply", "narrow", "ne", "neg", "negative", "norm", "not_equal",
    "outer", "pow", "ravel", "reciprocal", "remainder", "repeat_interleave", "roll", "round", "rsqrt", "sigmoid",
    "sign", "sin", "sinh", "softmax", "sort", "split", "sqrt", "square", "squeeze", "sub", "subtract", "swapaxes",
    "tan", "tanh", "tile", "topk", "tril", "triu", "true_divide", "trunc", "unbind", "unsqueeze", "var", "std",
]  # fmt: skip
"""Methods that are the function of the same name with the tensor as its first argument."""


def _attach_operators() -> None:
    arithmetic = {
        "add": ops.add, "sub": ops.sub, "mul": ops.mul, "truediv": ops.div, "floordiv": ops.floor_divide, "mod":
        ops.floor_mod,
        "pow": ops.pow, "matmul": ops.matmul, "and": ops.bitwise_and, "or": ops.bitwise_or, "xor": ops.bitwise_xor,
        "lshift": ops.bitwise_left_shift, "rshift": ops.bitwise_right_shift,
    }  # fmt: skip
    for name, function in arithmetic.items():
        setattr(Tensor, f"__{name}__", lambda self, other, function=function: function(self, other))
        setattr(Tensor, f"__r{name}__", lambda self, other, function=function: function(other, self))
    comparison = {"lt": ops.less, "le": ops.less_equal, "gt": ops.greater, "ge": ops.greater_equal}
    for name, function in comparison.items():
        setattr(Tensor, f"__{name}__", lambda self, other, function=function: function(self, other))
    unary: dict[str, Callable[[Any], Tensor]] = {
        "neg": ops.neg,
        "abs": ops.abs,
        "invert": ops.bitwise_not,
        "pos": ops.identity,
    }
    for name, apply in unary.items():
        setattr(Tensor, f"__{name}__", lambda self, apply=apply: apply(self))


def _equal(self: Tensor, other: Any) -> Any:
    return ops.equal(self, other) if _comparable(other) else False


def _not_equal(self: Tensor, other: Any) -> Any:
    return ops.not_equal(self, other) if _comparable(other) else True


def _comparable(other: Any) -> bool:
    return other is not None and not isinstance(other, (str, type))


def _variadic(first: Any, rest: tuple[Any, ...]) -> tuple[int, ...]:
    return ints((first, *rest) if rest else first, "the argument")


def reshape(self: Tensor, *shape: Any) -> Tensor:
    """Return the elements in another shape, given as integers or as a tuple."""
    return ops.reshape(self, _variadic(shape[0], shape[1:]) if shape else ())


def transpose(self: Tensor, *axes: Any) -> Tensor:
    """Return the tensor with its axes in another order; reversed if none is given."""
    if not axes or axes == (None,):
        return ops.transpose(self, tuple(reversed(range(self.ndim))))
    return ops.transpose(self, _variadic(axes[0], axes[1:]))


def expand(self: Tensor, *size: Any) -> Tensor:
    """Return the tensor repeated to a shape."""
    return ops.broadcast_to(self, _variadic(size[0], size[1:]))


def astype(self: Tensor, dtype: Any, copy: bool = True) -> Tensor:
    """Return the tensor in another element type."""
    return ops.cast(self, to_type(dtype))


def _reduction(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the method of a reduction: the axis may be called ``axis`` or ``dim``, and ``keepdims`` three ways."""

    def method(self: Tensor, axis: Any = None, keepdims: bool = False, **named: Any) -> Tensor:
        axis = named.pop("dim", axis)
        for name in ("keepdim", "keep_dims"):
            keepdims = named.pop(name, keepdims)
        return function(self, axis, keepdims, **named)

    method.__doc__ = function.__doc__
    return method


def _extreme(of_all: Callable[..., Tensor], with_index: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method of an extreme: ``x.max(1)``, ``x.max(dim=1)`` give indices too, ``x.max(axis=1)`` does not."""

    def method(self: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False,
               return_indices: bool = False) -> Any:  # fmt: skip
        if dim is not None:
            return with_index(self, dim, keepdim)
        return with_index(self, axis, keepdims) if return_indices else of_all(self, axis, keepdims)

    method.__doc__ = of_all.__doc__
    return method


def flatten(self: Tensor, order: str = "C", *, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Return the tensor with the axes from ``start_dim`` to ``end_dim`` as one: a vector by default."""
    return ops.flatten(self, order, start_dim=start_dim, end_dim=end_dim)


def argmax(self: Tensor, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the greatest element along ``axis``."""
    return ops.argmax(self, axis, keepdims)


def take(self: Tensor, indices: Any, axis: int | None = None) -> Tensor:
    """Return the elements or slices along ``axis`` that ``indices`` names."""
    return ops.take(self, indices) if axis is None else ops.gather(self, indices, axis)


def gather(self: Tensor, input_indices: Any, axis: int, batch_dims: int = 0) -> Tensor:
    """Return the slices along ``axis`` that ``input_indices`` names."""
    return ops.gather(self, input_indices, axis, batch_dims)


def repeat(self: Tensor, repeats: int, axis: int | None = None) -> Tensor:
    """Return the tensor with each slice along ``axis`` repeated."""
    return ops.repeat_interleave(self, repeats, axis)


def where(self: Tensor, condition: Any, y: Any) -> Tensor:
    """Return elements of the tensor where ``condition`` is true and of ``y`` elsewhere."""
    return ops.where(condition, self, y)


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """Return the elements in the shape of ``other``."""
    return ops.reshape(self, other.shape)


def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """Return the tensor repeated to the shape of ``other``."""
    return ops.broadcast_to(self, other.shape)


def attach() -> None:
    """Give ``Tensor`` its operators and methods. Done once, when ``opbuild.mindspore`` is imported."""
    _attach_operators()
    for name in _SAME:
        setattr(Tensor, name, getattr(ops, name))
    own = {
        "__eq__": _equal, "__ne__": _not_equal, "__getitem__": get_item, "__setitem__": set_item, "reshape": reshape,
        "view": reshape, "transpose": transpose, "permute": transpose, "expand": expand, "astype": astype, "to": astype,
        "max": _extreme(ops.amax, ops.max), "min": _extreme(ops.amin, ops.min), "sum": _reduction(ops.sum),
        "mean": _reduction(ops.mean), "prod": _reduction(ops.prod), "all": _reduction(ops.all),
        "any": _reduction(ops.any),
        "flatten": flatten, "argmax": argmax, "take": take, "gather": gather, "repeat": repeat, "where": where,
        "view_as": view_as, "reshape_as": view_as, "expand_as": expand_as,
    }  # fmt: skip
    for name, function in own.items():
        setattr(Tensor, name, function)
    for name, target in {"float": "float32", "half": "float16", "double": "float64", "int": "int32", "long": "int64",
                         "bool": "bool", "short": "int16", "byte": "uint8"}.items():  # fmt: skip
        setattr(Tensor, name, lambda self, target=target: astype(self, target))
    Tensor.T = property(transpose)  # type: ignore[attr-defined]
