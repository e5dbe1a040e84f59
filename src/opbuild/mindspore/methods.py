"""Gives ``Tensor`` its operators and methods, from the functions of ``ops``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

from opbuild.mindspore import ops
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.indexing import get_item, set_item
from opbuild.mindspore.ops.arranging import replaced
from opbuild.mindspore.ops.declaration import formula
from opbuild.mindspore.ops.shaping import ints
from opbuild.mindspore.overloads import IN_PLACE, OVERLOADS, PROPERTIES, transpose
from opbuild.mindspore.tensor import Tensor

_SPELLINGS = ({"axis", "dim"}, {"keepdims", "keepdim", "keep_dims"}, {"dim1", "axis1"}, {"dim2", "axis2"})
"""Names of arguments that mean the same: MindSpore's methods take those of several of its functions."""

_SAME = [
    "abs", "absolute", "acos", "acosh", "add", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "adjoint",
    "amax", "amin", "aminmax", "angle", "approximate_equal", "arccos", "arccosh", "arcsin", "arcsinh", "arctan",
    "arctan2", "arctanh", "argmax", "argmin", "argsort", "argwhere", "asin", "asinh", "atan", "atan2", "atanh",
    "baddbmm",
    "bincount", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "bmm", "broadcast_to", "ceil", "cholesky", "cholesky_inverse", "cholesky_solve", "chunk",
    "clamp", "clip", "col2im", "conj", "copysign", "cos", "cosh", "count_nonzero", "cov", "cross", "cummax",
    "cummin", "cumprod", "cumsum", "deg2rad", "det", "diag", "diagflat", "diagonal", "diagonal_scatter", "diff",
    "digamma", "div", "divide", "dot", "dsplit", "eq", "equal", "erf", "erfc", "erfinv", "exp", "expand_dims",
    "expm1", "fills", "flip", "fliplr", "flipud", "float_power", "floor", "floor_divide", "fmax", "fmin", "fmod",
    "fold", "frac", "gather_elements", "gather_nd", "gcd", "ge", "geqrf", "ger", "greater", "greater_equal", "gt",
    "hardshrink", "heaviside", "histc", "hsplit", "hypot", "i0", "igamma", "igammac", "imag", "index_fill",
    "index_select", "inner", "inv", "inverse", "invert", "is_complex", "isclose", "isfinite", "isinf", "isnan",
    "isneginf", "isposinf", "isreal", "lcm", "ldexp", "le", "lerp", "less", "less_equal", "lgamma", "log", "log10",
    "log1p", "log2", "log_matrix_determinant", "logaddexp", "logaddexp2", "logcumsumexp", "logdet", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logit", "logsumexp", "lstsq", "lt", "lu_solve", "masked_fill",
    "masked_select", "matmul", "matrix_determinant", "matrix_power", "maximum", "median", "minimum", "mm",
    "moveaxis", "movedim", "msort", "mul", "multinomial", "multiply", "mvlgamma", "nan_to_num", "nanmean",
    "nanmedian", "nanquantile", "nansum", "narrow", "ne", "neg", "negative", "nextafter", "nonzero", "norm",
    "not_equal", "orgqr", "ormqr", "outer", "positive", "pow", "put_", "quantile", "rad2deg", "random_categorical",
    "ravel", "real", "reciprocal", "remainder", "renorm", "repeat_interleave", "reverse", "reverse_sequence",
    "roll", "rot90", "round", "rsqrt", "scatter", "select_scatter", "sgn", "sigmoid", "sign", "signbit", "sin",
    "sinc", "sinh", "slice_scatter", "slogdet", "soft_shrink", "softmax", "sort", "split", "sqrt", "square",
    "std", "sub", "subtract", "svd", "swapaxes", "swapdims", "t", "tan", "tanh", "tensor_split", "tile",
    "top_k", "topk", "tril", "triu", "true_divide", "trunc", "type_as", "unbind", "unfold", "unique_consecutive",
    "unique_with_pad", "unsorted_segment_max", "unsorted_segment_min", "unsorted_segment_prod", "unsqueeze", "var",
    "vsplit", "xdivy", "xlogy",
]  # fmt: skip
"""Methods that are the function of the same name with the tensor as its first argument."""

reshape = formula("reshape", "the elements in another shape, given as integers or as a tuple",
                  lambda self, *shape: ops.reshape(self, _variadic(shape[0], shape[1:]) if shape else ()))  # fmt: skip
expand = formula("expand", "the tensor repeated to a shape",
                 lambda self, *size: ops.broadcast_to(self, _variadic(size[0], size[1:])))  # fmt: skip
astype = formula("astype", "the tensor in another element type",
                 lambda self, dtype, copy=True: ops.cast(self, to_type(dtype)))  # fmt: skip
flatten = formula(
    "flatten", "the tensor with the axes from ``start_dim`` to ``end_dim`` as one: a vector by default",
    lambda self, order="C", *, start_dim=0, end_dim=-1: ops.flatten(self, order, start_dim=start_dim, end_dim=end_dim),
)  # fmt: skip
take = formula(
    "take", "the elements or slices along ``axis`` that ``indices`` names",
    lambda self, indices, axis=None: ops.take(self, indices) if axis is None else ops.gather(self, indices, axis),
)  # fmt: skip
where = formula("where", "elements of the tensor where ``condition`` is true and of ``y`` elsewhere",
                lambda self, condition, y: ops.where(condition, self, y))  # fmt: skip
view_as = formula("view_as", "the elements in the shape of ``other``",
                  lambda self, other: ops.reshape(self, other.shape))  # fmt: skip
expand_as = formula("expand_as", "the tensor repeated to the shape of ``other``",
                    lambda self, other: ops.broadcast_to(self, other.shape))  # fmt: skip


def _attach_operators() -> None:
    arithmetic = {
        "add": ops.add, "sub": ops.sub, "mul": ops.mul, "truediv": ops.div, "floordiv": ops.floor_divide,
        "mod": ops.floor_mod, "pow": ops.pow, "matmul": ops.matmul, "and": ops.bitwise_and, "or": ops.bitwise_or,
        "xor": ops.bitwise_xor, "lshift": ops.bitwise_left_shift, "rshift": ops.bitwise_right_shift,
    }  # fmt: skip
    for name, function in arithmetic.items():
        setattr(Tensor, f"__{name}__", lambda self, other, function=function: function(self, other))
        setattr(Tensor, f"__r{name}__", lambda self, other, function=function: function(other, self))
    plain: dict[str, Callable[..., Any]] = {
        "lt": ops.less, "le": ops.less_equal, "gt": ops.greater, "ge": ops.greater_equal, "neg": ops.neg,
        "abs": ops.abs, "invert": ops.bitwise_not, "pos": ops.identity,
    }  # fmt: skip
    for name, function in plain.items():
        setattr(Tensor, f"__{name}__", lambda *operands, function=function: function(*operands))


def _equal(self: Tensor, other: Any) -> Any:
    return ops.equal(self, other) if _comparable(other) else False


def _not_equal(self: Tensor, other: Any) -> Any:
    return ops.not_equal(self, other) if _comparable(other) else True


def _comparable(other: Any) -> bool:
    return other is not None and not isinstance(other, (str, type))


def _variadic(first: Any, rest: tuple[Any, ...]) -> tuple[int, ...]:
    return ints((first, *rest) if rest else first, "the argument")


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


def repeat(self: Tensor, *repeats: Any, axis: int | None = None) -> Tensor:
    """Return the tensor repeated along its axes, one number for each; with ``axis=`` each slice along it."""
    if axis is not None:
        return ops.repeat_interleave(self, repeats[0], axis)
    counts = _variadic(repeats[0], repeats[1:])
    if len(counts) < self.ndim:
        raise ArgumentValueError(
            f"repeat of {self.ndim} axes by {counts}", "give a number for each axis, or use repeat_interleave"
        )
    return ops.tile(self, counts)


def _tolerant(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes ``axis`` and ``dim``, and ``keepdims`` as it is spelled in any of three ways."""
    taken = signature(function).parameters
    renamed = {other: name for group in _SPELLINGS for name in group & set(taken) for other in group - set(taken)}
    if not renamed:
        return function

    @wraps(function)
    def method(*args: Any, **named: Any) -> Any:
        return function(*args, **{renamed.get(name, name): value for name, value in named.items()})

    return method


def _in_place(function: Callable[..., Any], name: str) -> Callable[..., Tensor]:
    @wraps(function)
    def method(self: Tensor, *args: Any, **named: Any) -> Tensor:
        return replaced(self, function(self, *args, **named), f"Tensor.{name}")

    return method


def attach() -> None:
    """Give ``Tensor`` its operators and methods. Done once, when ``opbuild.mindspore`` is imported."""
    _attach_operators()
    for name in _SAME:
        setattr(Tensor, name, _tolerant(getattr(ops, name)))
    own: dict[str, Callable[..., Any]] = {
        "__eq__": _equal, "__ne__": _not_equal, "__getitem__": get_item, "__setitem__": set_item, "reshape": reshape,
        "view": reshape, "expand": expand, "astype": astype,
        "max": _extreme(ops.amax, ops.max), "min": _extreme(ops.amin, ops.min), "sum": _reduction(ops.sum),
        "mean": _reduction(ops.mean), "prod": _reduction(ops.prod), "all": _reduction(ops.all),
        "any": _reduction(ops.any),
        "flatten": flatten, "take": take, "repeat": repeat, "where": where,
        "view_as": view_as, "reshape_as": view_as, "expand_as": expand_as,
    }  # fmt: skip
    for name, function in own.items():
        setattr(Tensor, name, function)
    for name, target in {"float": "float32", "half": "float16", "bfloat16": "bfloat16", "double": "float64",
                         "int": "int32", "long": "int64", "bool": "bool", "short": "int16",
                         "byte": "uint8"}.items():  # fmt: skip
        setattr(Tensor, name, lambda self, target=target: astype(self, target))
    for name, function in OVERLOADS.items():
        setattr(Tensor, name, _tolerant(function))
    for name, function in IN_PLACE.items():
        setattr(Tensor, name, _in_place(_tolerant(function), name))
    for name, function in {**PROPERTIES, "T": transpose}.items():
        setattr(Tensor, name, property(function))
