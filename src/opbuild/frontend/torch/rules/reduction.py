"""Operators that reduce dimensions: sums, norms, variances, logical ones."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from opbuild.frontend.torch.promotion import category
from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.writing import StepBuilder, Value
from opbuild.graph.extents import is_open


def reduced(of: StepBuilder, op_type: str, x: Value, axes: Any, keep: bool) -> Value:
    """Write a reduction of some dimensions, of all if none are given."""
    if not x.shape:
        return x
    listed = [axes] if isinstance(axes, int) else axes or range(len(x.shape))
    numbers = of.ints(*(of.axis(each, len(x.shape)) for each in listed))
    return of(op_type, x, numbers, keepdims=int(keep))


@rule("mean.dim")
def mean(of: StepBuilder, x: Value, axes: Sequence[int] | None = None, keep: bool = False, **_: Any) -> Value:
    """The mean of some dimensions; that of images is what torch writes for pooling to one element."""
    x, rank = of.cast(x, of.dtype), len(x.shape)
    if rank in (4, 5) and {of.axis(each, rank) for each in axes or ()} == {*range(2, rank)}:
        pooled = of("GlobalAveragePool", x)
        return pooled if keep else of.reshape(pooled, x.shape[:2])
    return reduced(of, "ReduceMean", x, axes, keep)


@rule("mean.default")
def mean_of_all(of: StepBuilder, x: Value, **_: Any) -> Value:
    """The mean of all elements."""
    return reduced(of, "ReduceMean", of.cast(x, of.dtype), None, False)


@rule("sum.dim_IntList")
def sum_(of: StepBuilder, x: Value, axes: Sequence[int] | None = None, keep: bool = False, **_: Any) -> Value:
    """The sum of some dimensions."""
    return reduced(of, "ReduceSum", of.cast(x, of.dtype), axes, keep)


@rule("sum.default")
def sum_of_all(of: StepBuilder, x: Value, **_: Any) -> Value:
    """The sum of all elements."""
    return reduced(of, "ReduceSum", of.cast(x, of.dtype), None, False)


@rule("amax.default", "amin.default")
def extreme(of: StepBuilder, x: Value, axes: Sequence[int] = (), keep: bool = False) -> Value:
    """The greatest or smallest element of some dimensions."""
    return reduced(of, "ReduceMax" if "amax" in of.step.target else "ReduceMin", x, axes, keep)


@rule("any.dim", "any.dims")
def any_(of: StepBuilder, x: Value, axes: Any = None, keep: bool = False) -> Value:
    """Whether an element of some dimensions is not zero."""
    found = reduced(of, "ReduceMax", of.cast(of.cast(x, "bool"), "uint8"), axes, keep)
    return of.cast(found, "bool")


@rule("_softmax.default", "_safe_softmax.default")
def softmax(of: StepBuilder, x: Value, axis: int, half_to_float: Any = False) -> Value:
    """Softmax along a dimension; the safe one is zero where all is hidden."""
    if not x.shape:
        of.refuse("of a tensor without dimensions")
    x, axis = of.cast(x, of.dtype), of.axis(axis, len(x.shape))
    safe = {"zeros": "hidden"} if "safe" in of.step.target else {}
    return of("Softmax", x, axis=axis, **safe)


@rule("_log_softmax.default")
def log_softmax(of: StepBuilder, x: Value, axis: int, half_to_float: bool = False) -> Value:
    """The logarithm of softmax along a dimension."""
    if not x.shape:
        of.refuse("of a tensor without dimensions")
    return of("LogSoftmax", of.cast(x, of.dtype), axis=of.axis(axis, len(x.shape)))


@rule("argmax.default", "argmin.default")
def arg_extreme(of: StepBuilder, x: Value, axis: int | None = None, keep: bool = False) -> Value:
    """The place of the greatest or smallest element, the first one."""
    if category(x.dtype) == 0:
        of.refuse("of truth values")
    op_type = "ArgMax" if "argmax" in of.step.target else "ArgMin"
    if axis is None or not x.shape:
        flat = of(op_type, of.reshape(x, (x.type.size,)), axis=0, keepdims=0)
        return of.reshape(flat, (1,) * len(x.shape)) if keep else flat
    return of(op_type, x, axis=of.axis(axis, len(x.shape)), keepdims=int(keep))


@rule("cumsum.default")
def cumsum(of: StepBuilder, x: Value, axis: int, **_: Any) -> Value:
    """Running sums."""
    x = of.cast(x, of.dtype)
    return of("CumSum", x, of.constant(of.axis(axis, len(x.shape)), "int64")) if x.shape else x


@rule("linalg_vector_norm.default")
def vector_norm(
    of: StepBuilder, x: Value, order: Any = 2, axes: Any = None, keep: bool = False, dtype: Any = None
) -> Value:
    """The norm of some dimensions."""
    x = of.cast(x, of.dtype)
    if not x.shape:
        if order == 0:
            return of.cast(of("Not", of("Equal", x, of.constant(0, x.dtype))), x.dtype)
        return of("Abs", x)
    plain = {1: "ReduceL1", 2: "ReduceL2"}.get(order)
    if plain:
        return reduced(of, plain, x, axes, keep)
    size = of("Abs", x)
    if order in (inf, -inf):
        return reduced(of, "ReduceMax" if order > 0 else "ReduceMin", size, axes, keep)
    if order == 0:
        differs = of("Not", of("Equal", x, of.constant(0, x.dtype)))
        return reduced(of, "ReduceSum", of.cast(differs, x.dtype), axes, keep)
    total = reduced(of, "ReduceSum", of("Pow", size, of.constant(order, x.dtype)), axes, keep)
    return of("Pow", total, of.constant(1 / order, x.dtype))


@rule("var_mean.correction")
def var_mean(
    of: StepBuilder, x: Value, axes: Any = None, correction: Any = None, keepdim: bool = False
) -> tuple[Value, Value]:
    """The variance and the mean of some dimensions."""
    rank = len(x.shape)
    listed = sorted({of.axis(each, rank) for each in axes or range(rank)})
    count = prod(x.shape[axis] for axis in listed) if rank else 1
    if is_open([count]):
        of.refuse("of how many is not known")
    middle = reduced(of, "ReduceMean", x, listed, keep=True)
    distance = of("Sub", x, middle)
    total = reduced(of, "ReduceSum", of("Mul", distance, distance), listed, keep=keepdim)
    divisor = max(0, count - (1 if correction is None else correction)) if count else 0
    kept = tuple(extent for axis, extent in enumerate(x.shape) if axis not in listed)
    mean = middle if keepdim else of.reshape(middle, kept)
    return of("Div", total, of.constant(divisor, x.dtype)), mean


@rule("var.correction")
def var(of: StepBuilder, x: Value, axes: Any = None, correction: Any = None, keepdim: bool = False) -> Value:
    """The variance of some dimensions."""
    return var_mean(of, x, axes, correction, keepdim)[0]


@rule("prod.default", "prod.dim_int")
def product_of(of: StepBuilder, x: Value, axis: int | None = None, keep: bool = False, **_: Any) -> Value:
    """The product_of of a dimension, or of all elements."""
    return reduced(of, "ReduceProd", of.cast(x, of.dtype), axis, keep)


@rule("cumprod.default")
def cumprod(of: StepBuilder, x: Value, axis: int, **_: Any) -> Value:
    """Running products."""
    x = of.cast(x, of.dtype)
    return of("CumProd", x, of.constant(of.axis(axis, len(x.shape)), "int64")) if x.shape else x


@rule("any.default", "all.default", "all.dim", "all.dims")
def logical(of: StepBuilder, x: Value, axes: int | Sequence[int] | None = None, keep: bool = False) -> Value:
    """Whether an element, or each one, is not zero."""
    truth = of.cast(of.cast(x, "bool"), "uint8")
    kind = "ReduceMax" if ".any." in of.step.target else "ReduceMin"
    return of.cast(reduced(of, kind, truth, axes, keep), of.dtype)


@rule("max.default", "min.default")
def extreme_of_all(of: StepBuilder, x: Value) -> Value:
    """The greatest or smallest of all elements."""
    return reduced(of, _REDUCES[of.step.target.split(".")[1]][0], x, None, keep=False)


@rule("max.dim", "min.dim")
def extreme_and_place(of: StepBuilder, x: Value, axis: int, keep: bool = False) -> tuple[Value, Value]:
    """The greatest or smallest element of a dimension, and where the first one is."""
    if category(x.dtype) == 0:
        of.refuse("of truth values")
    kind, place = _REDUCES[of.step.target.split(".")[1]]
    if not x.shape:
        return x, of.constant(0, "int64")
    where = of(place, x, axis=of.axis(axis, len(x.shape)), keepdims=int(keep))
    return reduced(of, kind, x, axis, keep), where


_REDUCES = {"max": ("ReduceMax", "ArgMax"), "min": ("ReduceMin", "ArgMin")}
