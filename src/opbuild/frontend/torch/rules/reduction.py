"""Operators that reduce dimensions (sums, norms, variances, logical ones), and normalizations, as ONNX has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any

from opbuild.frontend.torch.builder import RULES, StepBuilder, Value, category, rule
from opbuild.graph.extents import is_open
from opbuild.graph.gradients.registry import channel_means


def reduced(of: StepBuilder, op_type: str, x: Value, axes: Any, keep: bool) -> Value:
    """Write a reduction of some dimensions, of all if none are given."""
    if not x.shape:
        return x
    listed = [axes] if isinstance(axes, int) else axes or range(len(x.shape))
    numbers = of.ints(*(of.axis(each, len(x.shape)) for each in listed))
    return of(op_type, x, numbers, keepdims=int(keep))


def _reduction(op_type: str) -> Callable[..., Value]:
    """Return the rule of a reduction in the result's type, of all dimensions if none are given."""

    def write(of: StepBuilder, x: Value, axes: Any = None, keep: bool = False, **_: Any) -> Value:
        return reduced(of, op_type, of.cast(x, of.dtype), axes, keep)

    return write


def _running_rule(op_type: str) -> Callable[..., Value]:
    """Return the rule of a running operation along a dimension."""

    def write(of: StepBuilder, x: Value, axis: int, **_: Any) -> Value:
        x = of.cast(x, of.dtype)
        return of(op_type, x, of.constant(of.axis(axis, len(x.shape)), "int64")) if x.shape else x

    return write


def _logical(op_type: str) -> Callable[..., Value]:
    """Return the rule of whether an element, or each one, is not zero."""

    def write(of: StepBuilder, x: Value, axes: Any = None, keep: bool = False) -> Value:
        return of.cast(reduced(of, op_type, of.cast(of.cast(x, "bool"), "uint8"), axes, keep), of.dtype)

    return write


@rule("mean.dim")
def mean(of: StepBuilder, x: Value, axes: Sequence[int] | None = None, keep: bool = False, **_: Any) -> Value:
    """The mean of some dimensions; that of images is torch's form of pooling to one element."""
    x, rank = of.cast(x, of.dtype), len(x.shape)
    if rank in (4, 5) and {of.axis(each, rank) for each in axes or ()} == {*range(2, rank)}:
        pooled = of("GlobalAveragePool", x)
        return pooled if keep else of.reshape(pooled, x.shape[:2])
    return reduced(of, "ReduceMean", x, axes, keep)


@rule("_softmax.default", "_safe_softmax.default", "_log_softmax.default")
def softmax(of: StepBuilder, x: Value, axis: int, half_to_float: Any = False) -> Value:
    """Softmax along a dimension, or its logarithm; the safe one is zero where all is hidden."""
    of.refuse_if(not x.shape, "of a tensor without dimensions")
    x, axis = of.cast(x, of.dtype), of.axis(axis, len(x.shape))
    safe = {"zeros": "hidden"} if "safe" in of.step.target else {}
    return of("LogSoftmax" if "log" in of.step.target else "Softmax", x, axis=axis, **safe)


@rule("argmax.default", "argmin.default")
def arg_extreme(of: StepBuilder, x: Value, axis: int | None = None, keep: bool = False) -> Value:
    """The place of the greatest or smallest element, the first one."""
    of.refuse_if(category(x.dtype) == 0, "of truth values")
    op_type = "ArgMax" if "argmax" in of.step.target else "ArgMin"
    if axis is None or not x.shape:
        flat = of(op_type, of.reshape(x, (x.type.size,)), axis=0, keepdims=0)
        return of.reshape(flat, (1,) * len(x.shape)) if keep else flat
    return of(op_type, x, axis=of.axis(axis, len(x.shape)), keepdims=int(keep))


@rule("linalg_vector_norm.default")
def vector_norm(
    of: StepBuilder, x: Value, order: Any = 2, axes: Any = None, keep: bool = False, dtype: Any = None
) -> Value:
    """The norm of some dimensions."""
    x = of.cast(x, of.dtype)
    if order == 0:
        differs = of("Not", of("Equal", x, of.constant(0, x.dtype)))
        return reduced(of, "ReduceSum", of.cast(differs, x.dtype), axes, keep)
    if not x.shape:
        return of("Abs", x)
    plain = {1: "ReduceL1", 2: "ReduceL2"}.get(order)
    if plain:
        return reduced(of, plain, x, axes, keep)
    size = of("Abs", x)
    if order in (inf, -inf):
        return reduced(of, "ReduceMax" if order > 0 else "ReduceMin", size, axes, keep)
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
    of.refuse_if(is_open([count]), "of how many is not known")
    middle = reduced(of, "ReduceMean", x, listed, keep=True)
    distance = of("Sub", x, middle)
    total = reduced(of, "ReduceSum", of("Mul", distance, distance), listed, keep=keepdim)
    divisor = max(0, count - (1 if correction is None else correction)) if count else 0
    kept = tuple(extent for axis, extent in enumerate(x.shape) if axis not in listed)
    mean = middle if keepdim else of.reshape(middle, kept)
    return of("Div", total, of.constant(divisor, x.dtype)), mean


@rule("max.dim", "min.dim")
def extreme_and_place(of: StepBuilder, x: Value, axis: int, keep: bool = False) -> tuple[Value, Value]:
    """The greatest or smallest element of a dimension, and where the first one is."""
    of.refuse_if(category(x.dtype) == 0, "of truth values")
    kind, place = ("ReduceMax", "ArgMax") if ".max." in of.step.target else ("ReduceMin", "ArgMin")
    if not x.shape:
        return x, of.constant(0, "int64")
    where = of(place, x, axis=of.axis(axis, len(x.shape)), keepdims=int(keep))
    return reduced(of, kind, x, axis, keep), where


RULES.register_all(
    {
        "mean.default": _reduction("ReduceMean"),
        "sum.default sum.dim_IntList": _reduction("ReduceSum"),
        "prod.default prod.dim_int": _reduction("ReduceProd"),
        "amax.default max.default": _reduction("ReduceMax"),
        "amin.default min.default": _reduction("ReduceMin"),
        "cumsum.default": _running_rule("CumSum"),
        "cumprod.default": _running_rule("CumProd"),
        "any.default any.dim any.dims": _logical("ReduceMax"),
        "all.default all.dim all.dims": _logical("ReduceMin"),
        "var.correction": lambda of, x, axes=None, correction=None, keepdim=False: var_mean(
            of, x, axes, correction, keepdim
        )[0],
    },
    domain="aten",
)


@rule("_native_batch_norm_legit_no_training.default")
def batch_norm(
    of: StepBuilder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    momentum: float,
    epsilon: float,
) -> tuple[Value | None, ...]:
    """Batch normalization by running statistics; those of the batch are empty."""
    weight, bias = _affine(of, weight, bias, x.shape[1:2], mean.dtype)
    operands = [of.cast(each, x.dtype) for each in (weight, bias, mean, variance)]
    statistics = (of.constant([], mean.dtype) if of.is_read(index) else None for index in (1, 2))
    return of("BatchNormalization", x, *operands, epsilon=epsilon), *statistics


@rule("_native_batch_norm_legit_functional.default")
def batch_norm_of_batch(
    of: StepBuilder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    training: bool,
    momentum: float,
    epsilon: float,
) -> tuple[Value, ...]:
    """Batch normalization by the batch's statistics: also these, and the running ones as they are then."""
    of.refuse_if(not training or x.dtype != mean.dtype, "running statistics, or statistics of another element type")
    wide = tuple(extent if axis == 1 else 1 for axis, extent in enumerate(x.shape))
    count = of.operand(prod((*x.shape[:1], *x.shape[2:])), x.dtype)
    middle = channel_means(of, x)
    spread = channel_means(of, of("Square", of("Sub", x, middle), domain="opbuild"))
    inverse = of("Reciprocal", of("Sqrt", of("Add", spread, of.constant(epsilon, x.dtype))))
    weight, bias = (of.reshape(each, wide) for each in _affine(of, weight, bias, x.shape[1:2], x.dtype))
    result = of("Add", of("Mul", of("Sub", x, middle), of("Mul", inverse, weight)), bias)
    found_mean, found_inverse, found_variance = (of.reshape(each, mean.shape) for each in (middle, inverse, spread))
    unbiased = of("Mul", found_variance, of("Div", count, of("Sub", count, of.constant(1, x.dtype))))

    def running(old: Value, new: Value) -> Value:
        kept = of("Mul", old, of.constant(1 - momentum, x.dtype))
        return of("Add", kept, of("Mul", new, of.constant(momentum, x.dtype)))

    return result, found_mean, found_inverse, running(mean, found_mean), running(variance, unbiased)


@rule("native_layer_norm.default")
def layer_norm(
    of: StepBuilder, x: Value, shape: Sequence[Any], weight: Value | None, bias: Value | None, epsilon: float
) -> tuple[Value | None, ...]:
    """Layer normalization of the last dimensions."""
    weight, bias = _affine(of, weight, bias, tuple(shape), x.dtype)
    attrs: dict[str, Any] = {"axis": -len(shape), "epsilon": epsilon}
    if any(map(of.is_read, (1, 2))):
        of.refuse_if(0 in shape or x.dtype == "float64", "statistics of nothing, or of float64")
        return of.several("LayerNormalization", 3, x, weight, bias, **attrs)
    return of("LayerNormalization", x, weight, bias, **attrs), None, None


@rule("native_group_norm.default")
def group_norm(
    of: StepBuilder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    batch: Any,
    channels: Any,
    space: Any,
    groups: int,
    epsilon: float,
) -> tuple[Value | None, ...]:
    """Group normalization."""
    weight, bias = _affine(of, weight, bias, (channels,), x.dtype)
    shaped = x if len(x.shape) > 2 else of.reshape(x, (*x.shape, 1))
    result = of("GroupNormalization", shaped, weight, bias, num_groups=groups, epsilon=epsilon)
    if not any(map(of.is_read, (1, 2))):
        return of.reshape(result, x.shape), None, None
    of.refuse_if(is_open([batch, channels, space]), "statistics of open sizes")
    grouped = of.reshape(x, (batch, groups, channels * space // groups))
    mean = reduced(of, "ReduceMean", grouped, (2,), keep=True)
    distance = of("Sub", grouped, mean)
    variance = reduced(of, "ReduceMean", of("Mul", distance, distance), (2,), keep=True)
    inverse = of("Reciprocal", of("Sqrt", of("Add", variance, of.constant(epsilon, x.dtype))))
    return of.reshape(result, x.shape), of.reshape(mean, (batch, groups)), of.reshape(inverse, (batch, groups))


def _affine(
    of: StepBuilder, weight: Value | None, bias: Value | None, shape: tuple[Any, ...], dtype: str
) -> tuple[Value, Value]:
    """Return the scale and the shift of a normalization: ones and zeros where there are none."""
    ones, zeros = (of.constant([number] * prod(shape), dtype) for number in (1, 0))
    weight = of.reshape(ones, shape) if weight is None else weight
    return weight, of.reshape(zeros, shape) if bias is None else bias
