"""Reductions: sums, means, extremes and their places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod as product
from typing import Any

import numpy as np

from opbuild.frontend.cell import location
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, axis_in
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.execution import cast, emit, emit_many
from opbuild.mindspore.ops.arithmetic import OWN, add, div, exp, log, mul, sqrt, square, sub
from opbuild.mindspore.ops.comparison import not_equal, where
from opbuild.mindspore.ops.declaration import floating, formula, named, need_tensor, of_tensor
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "count_nonzero", "cumsum", "logsumexp", "max", "mean",
    "min", "prod", "sort", "std", "sum", "topk", "var",
]  # fmt: skip

sum = formula(
    "sum", "the sum over ``dim``; truth values and small integers are summed as int64",
    lambda input, dim=None, keepdim=False, *, dtype=None: reduce("ReduceSum", _wide(input, "sum", dtype), dim, keepdim),
)  # fmt: skip
mean = formula("mean", "the mean over ``axis``",
               of_tensor(lambda x, axis=None, keep_dims=False: reduce("ReduceMean", x, axis, keep_dims)))  # fmt: skip
argmax = formula(
    "argmax", "the index (int64) of the greatest element along ``dim``; in the flattened tensor if ``dim`` is None",
    of_tensor(lambda input, dim=None, keepdim=False: index_of("ArgMax", input, dim, keepdim, "int64")),
)  # fmt: skip
argmin = formula(
    "argmin", "the index (int32) of the smallest element along ``axis``; in the flattened tensor if ``axis`` is None",
    of_tensor(lambda input, axis=None, keepdims=False: index_of("ArgMin", input, axis, keepdims, "int32")),
)  # fmt: skip
std = formula("std", "the standard deviation over ``axis``",
              lambda input, axis=None, ddof=0, keepdims=False: sqrt(var(input, axis, ddof, keepdims)))  # fmt: skip
argsort = formula("argsort", "the indices (int32) that sort the tensor along ``axis``",
                  lambda input, axis=-1, descending=False: sort(input, axis, descending)[1])  # fmt: skip


Axis = int | Sequence[int] | None


def reduce(op_type: str, tensor: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    """Apply an ONNX reduction over ``axis``; None or an empty sequence means all."""
    axes = axes_of(axis, tensor.ndim, op_type)
    if tensor.ndim == 0:
        return tensor
    return emit(op_type, tensor, np.array(axes, np.int64), keepdims=int(keepdims))


def axes_of(axis: Axis, rank: int, name: str) -> tuple[int, ...]:
    """Return the axes counted from the front; all of them for None or an empty sequence.

    Raises:
        ArgumentValueError: If one is out of range or named twice.
    """
    if isinstance(axis, Tensor):
        axis = axis.tolist()
    if axis is None or (isinstance(axis, Sequence) and not axis):
        return tuple(range(rank))
    axes = tuple(axis_in(item, rank, name) for item in (axis if isinstance(axis, Sequence) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ArgumentValueError(f"{name} was given axis {axis} twice{location()}", "name each axis once")
    return axes


def _wide(value: Any, name: str, dtype: Any) -> Tensor:
    tensor = need_tensor(value, name)
    if dtype is None:
        return tensor if tensor.is_floating_point() else cast(tensor, "int64")
    return cast(tensor, to_type(dtype).name)


def prod(input: Any, axis: Axis = None, keep_dims: bool = False, dtype: Any = None) -> Tensor:
    """Return the product over ``axis``; truth values and small integers are multiplied as int64."""
    return reduce("ReduceProd", _wide(input, "prod", dtype), axis, keep_dims)


def _extreme(name: str, op_type: str, what: str) -> Callable[..., Tensor]:
    def function(input: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
        return reduce(op_type, need_tensor(input, name), axis, keepdims)

    return formula(name, f"the {what} element over ``axis``", function)


def _with_index(name: str, op_type: str, extreme: Callable[..., Tensor], what: str) -> Callable[..., Any]:
    def function(input: Any, axis: int | None = None, keepdims: bool = False) -> tuple[Tensor, Tensor]:
        if axis is None:
            return extreme(input), Tensor.of(np.asarray(0, np.int64))
        return extreme(input, axis, keepdims), index_of(op_type, need_tensor(input, name), axis, keepdims, "int64")

    doc = f"Return the {what} element along ``axis`` and its index.\n\n"
    return named(function, name, f"{doc}Of the whole tensor (and index 0) if ``axis`` is None.\n")


amax, amin = _extreme("amax", "ReduceMax", "greatest"), _extreme("amin", "ReduceMin", "smallest")
max, min = _with_index("max", "ArgMax", amax, "greatest"), _with_index("min", "ArgMin", amin, "smallest")


def index_of(op_type: str, tensor: Tensor, axis: int | None, keepdims: bool, dtype: str) -> Tensor:
    """Apply ONNX's ArgMax or ArgMin; the first of equal elements counts."""
    if axis is None:
        tensor = emit("Reshape", tensor, np.array([-1], np.int64))
        axis, keepdims = 0, False
    axis = axis_in(axis, tensor.ndim, op_type)
    return cast(emit(op_type, tensor, axis=axis, keepdims=int(keepdims)), dtype)


def _logical(name: str, op_type: str, what: str) -> Callable[..., Tensor]:
    def function(input: Any, axis: Axis = None, keep_dims: bool = False) -> Tensor:
        truth = cast(need_tensor(input, name), "bool")
        return cast(reduce(op_type, cast(truth, "int32"), axis, keep_dims), "bool")

    return formula(name, f"whether {what} true", function)


all, any = (
    _logical("all", "ReduceMin", "all elements over ``axis`` are"),
    _logical("any", "ReduceMax", "any element over ``axis`` is"),
)


def var(input: Any, axis: Axis = None, ddof: int | bool = 0, keepdims: bool = False) -> Tensor:
    """Return the variance over ``axis``; the divisor is the number of elements less ``ddof``."""
    tensor = floating(input, "var")
    axes = axes_of(axis, tensor.ndim, "var")
    spread = square(sub(tensor, reduce("ReduceMean", tensor, axes, True)))
    count = product(tensor.shape[item] for item in axes)
    if not ddof:
        return reduce("ReduceMean", spread, axes, keepdims)
    return div(reduce("ReduceSum", spread, axes, keepdims), float(count - int(ddof)))


def logsumexp(input: Any, dim: Axis, keepdim: bool = False) -> Tensor:
    """Return the logarithm of the sum of ``exp(input)`` over ``dim``, without overflow."""
    tensor = floating(input, "logsumexp")
    high = reduce("ReduceMax", tensor, dim, True)
    # An infinite maximum less itself is NaN: move by 0 there.
    high = where(emit("IsFinite", high, domain=OWN), high, 0.0)
    total = log(reduce("ReduceSum", exp(sub(tensor, high)), dim, True))
    kept = add(total, high)
    if keepdim:
        return kept
    shape = [extent for index, extent in enumerate(kept.shape) if index not in axes_of(dim, tensor.ndim, "logsumexp")]
    return emit("Reshape", kept, np.array(shape, np.int64))


def cumsum(x: Any, axis: int, dtype: Any = None) -> Tensor:
    """Return the running sums along ``axis``."""
    tensor = need_tensor(x, "cumsum")
    tensor = tensor if dtype is None else cast(tensor, to_type(dtype).name)
    return emit("CumSum", tensor, np.asarray(axis_in(axis, tensor.ndim, "cumsum"), np.int64))


def count_nonzero(x: Any, axis: Axis = (), keep_dims: bool = False, dtype: Any = None) -> Tensor:
    """Return how many elements over ``axis`` are not zero, as int32 or ``dtype``."""
    counted = cast(not_equal(need_tensor(x, "count_nonzero"), 0), "int32")
    return cast(reduce("ReduceSum", counted, axis, keep_dims), "int32" if dtype is None else to_type(dtype).name)


def topk(input: Any, k: int, dim: int | None = None, largest: bool = True,
         sorted: bool = True) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the ``k`` greatest (or smallest) elements along ``dim`` and their indices (int32)."""
    tensor = need_tensor(input, "topk")
    if not isinstance(k, int):
        raise ArgumentTypeError(f"topk was given k={k!r}", "give an integer")
    axis = axis_in(-1 if dim is None else dim, tensor.ndim, "topk")
    values, indices = emit_many(
        "TopK",
        (tensor, np.array([k], np.int64)),
        {"axis": axis, "largest": int(largest), "sorted": int(sorted)},
        outputs=2,
    )
    return values, cast(indices, "int32")


def sort(input_x: Any, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """Return the elements in order along ``axis`` and the indices (int32) that they had."""
    tensor = need_tensor(input_x, "sort")
    return topk(tensor, tensor.shape[axis_in(axis, tensor.ndim, "sort")], axis, descending)


def l2_normalize(x: Any, axis: int = 0, epsilon: float = 1e-4) -> Tensor:
    """Return ``x / sqrt(max(sum(x**2), epsilon))`` along ``axis``."""
    tensor = need_tensor(x, "L2Normalize")
    total = reduce("ReduceSum", mul(tensor, tensor), axis, True)
    return div(tensor, sqrt(emit("Max", total, np.asarray(epsilon, tensor.type.dtype))))
