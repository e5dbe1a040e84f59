"""Norms, variances, products and logical reductions."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from opbuild.frontend.torch.promotion import category
from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.rules.reduction import reduced
from opbuild.frontend.torch.writing import StepBuilder, Value
from opbuild.graph.extents import is_open


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
def product(of: StepBuilder, x: Value, axis: int | None = None, keep: bool = False, **_: Any) -> Value:
    """The product of a dimension, or of all elements."""
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
def extreme(of: StepBuilder, x: Value) -> Value:
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
