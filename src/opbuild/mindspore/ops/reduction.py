"""Matrix products and reductions: sums, means, extremes and their places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.mindspore import execution, names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, TensorShapeError, axis_in
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.execution import cast, emit, emit_many, in_floats, on_data
from opbuild.mindspore.ops import arithmetic
from opbuild.mindspore.ops.declaration import floating, formula, named, need_tensor, of_tensor, of_tensors, spelled
from opbuild.mindspore.ops.shaping import concat, cut, expand_dims, reshaped, squeeze, swapaxes
from opbuild.mindspore.tensor import Tensor

bmm = formula("the products of two stacks of matrices",
    lambda input_x, mat2: product(input_x, mat2, False, False, "bmm", None))  # fmt: skip
mm = formula("the product of two matrices", lambda input, mat2: product(input, mat2, False, False, "mm", 2))
outer = formula("the products of each element of a vector with each of another",
    of_tensors(lambda input, vec2:
        arithmetic.mul(emit("Reshape", input, np.array([-1, 1], np.int64)), vec2)))  # fmt: skip
addmm = formula("``beta * input + alpha * (mat1 @ mat2)``",
    lambda input, mat1, mat2, *, beta=1, alpha=1: scaled_sum(input, mm(mat1, mat2), beta, alpha))  # fmt: skip
baddbmm = formula("``beta * input + alpha * (batch1 @ batch2)``",
    lambda input, batch1, batch2, beta=1, alpha=1: scaled_sum(input, bmm(batch1, batch2), beta, alpha))  # fmt: skip
Axis = int | Sequence[int] | None


def matmul(input: Any, other: Any) -> Tensor:
    """Return the matrix product, with numpy's rules for vectors and stacks of matrices."""
    first, second = need_tensor(input, "matmul"), need_tensor(other, "matmul")
    common = execution.promote(first.type.dtype, second.type.dtype)
    return emit("MatMul", cast(first, common), cast(second, common))


def product(first: Any, second: Any, transpose_a: bool, transpose_b: bool, name: str, rank: int | None) -> Tensor:
    """Return the product of matrices, each transposed first if asked; of ``rank`` 2, or of stacks if None."""
    first, second = need_tensor(first, name), need_tensor(second, name)
    for tensor in (first, second):
        if tensor.ndim < 2 or (rank is not None and tensor.ndim != rank):
            raise TensorShapeError(
                f"{name} was given a tensor of shape {tensor.shape}",
                f"it needs {'at least 2' if rank is None else rank} dimensions",
            )
    if rank == 2 and (transpose_a or transpose_b) and first.is_floating_point():
        return emit("Gemm", first, second, transA=int(transpose_a), transB=int(transpose_b))
    return matmul(_swapped(first) if transpose_a else first, _swapped(second) if transpose_b else second)


def _swapped(tensor: Tensor) -> Tensor:
    perm = (*range(tensor.ndim - 2), tensor.ndim - 1, tensor.ndim - 2)
    return emit("Transpose", tensor, perm=perm)


def dot(input: Any, other: Any) -> Tensor:
    """Return the sums of products over the last axis of ``input`` and the last but one of ``other``."""
    first, second = need_tensor(input, "dot"), need_tensor(other, "dot")
    if second.ndim < 3:
        return matmul(first, second)
    return tensor_dot(first, second, ((first.ndim - 1,), (second.ndim - 2,)))


def inner(input: Any, other: Any) -> Tensor:
    """Return the sums of products over the last axes."""
    first, second = need_tensor(input, "inner"), need_tensor(other, "inner")
    if 0 in (first.ndim, second.ndim):
        return arithmetic.mul(first, second)
    return tensor_dot(first, second, ((first.ndim - 1,), (second.ndim - 1,)))


def tensor_dot(x1: Any, x2: Any, axes: Any) -> Tensor:
    """Return the sums of products over ``axes``: a number of axes, or a pair of lists of them."""
    first, second = need_tensor(x1, "tensor_dot"), need_tensor(x2, "tensor_dot")
    if isinstance(axes, int):
        of_first = tuple(range(first.ndim - axes, first.ndim))
        of_second = tuple(range(axes))
    else:
        of_first, of_second = (
            tuple(axis % tensor.ndim for axis in ((item,) if isinstance(item, int) else item))
            for item, tensor in zip(axes, (first, second), strict=True)
        )
    kept_first = tuple(axis for axis in range(first.ndim) if axis not in of_first)
    kept_second = tuple(axis for axis in range(second.ndim) if axis not in of_second)
    depth = int(np.prod([first.shape[axis] for axis in of_first], dtype=np.int64))
    left = _matrix(first, kept_first + of_first, (-1, depth) if first.size else (0, depth))
    right = _matrix(second, of_second + kept_second, (depth, -1) if second.size else (depth, 0))
    shape = [first.shape[axis] for axis in kept_first] + [second.shape[axis] for axis in kept_second]
    return emit("Reshape", matmul(left, right), np.array(shape, np.int64))


def _matrix(tensor: Tensor, perm: tuple[int, ...], shape: tuple[int, int]) -> Tensor:
    ordered = tensor if perm == tuple(range(tensor.ndim)) else emit("Transpose", tensor, perm=perm)
    return emit("Reshape", ordered, np.array(shape, np.int64))


def scaled_sum(tensor: Any, result: Tensor, beta: float, alpha: float) -> Tensor:
    """Return ``beta * tensor + alpha * result``."""
    result = result if alpha == 1 else arithmetic.mul(result, alpha)
    return arithmetic.add(tensor if beta == 1 else arithmetic.mul(tensor, beta), result)


def dense(input: Any, weight: Any, bias: Any = None) -> Tensor:
    """Return ``input @ weight.T + bias``, the weight of shape (out, in)."""
    tensor, matrix = need_tensor(input, "dense"), need_tensor(weight, "dense")
    result = product(_rows(tensor), matrix, False, True, "dense", 2)
    result = result if bias is None else arithmetic.add(result, bias)
    if tensor.ndim == 2:
        return result
    return emit("Reshape", result, np.array((*tensor.shape[:-1], matrix.shape[0]), np.int64))


def _rows(tensor: Tensor) -> Tensor:
    """Return the tensor as a matrix with its last axis as columns."""
    if tensor.ndim == 2:
        return tensor
    rows = int(np.prod(tensor.shape[:-1], dtype=np.int64))
    return emit("Reshape", tensor, np.array([rows, tensor.shape[-1]], np.int64))


def bias_add(input_x: Any, bias: Any) -> Tensor:
    """Return the tensor plus one number for each channel (axis 1)."""
    tensor, numbers = need_tensor(input_x, "bias_add"), need_tensor(bias, "bias_add")
    if numbers.ndim != 1 or tensor.ndim < 2 or numbers.shape[0] != tensor.shape[1]:
        raise TensorShapeError(
            f"bias_add of shapes {tensor.shape} and {numbers.shape}", "the bias has one number for each channel"
        )
    if tensor.ndim > 2:
        numbers = emit("Reshape", numbers, np.array([-1] + [1] * (tensor.ndim - 2), np.int64))
    return arithmetic.add(tensor, numbers)


def reduce(op_type: str, tensor: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    """Apply an ONNX reduction over ``axis``; None or an empty sequence means all."""
    axes = axes_of(axis, tensor.ndim, op_type)
    if tensor.ndim == 0:
        return tensor
    return emit(op_type, tensor, np.array(axes, np.int64), keepdims=int(keepdims))


def axes_of(axis: Axis, rank: int, name: str) -> tuple[int, ...]:
    """Return the axes counted from the front, each once; all of them for None or an empty sequence."""
    if isinstance(axis, Tensor):
        axis = axis.tolist()
    if axis is None or (isinstance(axis, Sequence) and not axis):
        return tuple(range(rank))
    axes = tuple(axis_in(item, rank, name) for item in (axis if isinstance(axis, Sequence) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ArgumentValueError(f"{name} was given axis {axis} twice", "name each axis once")
    return axes


def _wide(value: Any, name: str, dtype: Any) -> Tensor:
    tensor = need_tensor(value, name)
    if dtype is None:
        return tensor if tensor.is_floating_point() else cast(tensor, "int64")
    return cast(tensor, to_type(dtype).name)


def _with_index(name: str, op_type: str, extreme: Callable[..., Tensor], what: str) -> Callable[..., Any]:
    def function(input: Any, axis: int | None = None, keepdims: bool = False) -> tuple[Tensor, Tensor]:
        if axis is None:
            return extreme(input), Tensor.of(np.asarray(0, np.int64))
        return extreme(input, axis, keepdims), index_of(op_type, need_tensor(input, name), axis, keepdims, "int64")

    doc = f"Return the {what} element along ``axis`` and its index.\n\n"
    return named(function, name, f"{doc}Of the whole tensor (and index 0) if ``axis`` is None.\n")


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

    return formula(f"whether {what} true", function)


def var(input: Any, axis: Axis = None, ddof: int | bool = 0, keepdims: bool = False) -> Tensor:
    """Return the variance over ``axis``; the divisor is the number of elements less ``ddof``."""
    tensor = floating(input, "var")
    axes = axes_of(axis, tensor.ndim, "var")
    spread = arithmetic.square(arithmetic.sub(tensor, reduce("ReduceMean", tensor, axes, True)))
    count = math.prod(tensor.shape[item] for item in axes)
    if not ddof:
        return reduce("ReduceMean", spread, axes, keepdims)
    return arithmetic.div(reduce("ReduceSum", spread, axes, keepdims), float(count - int(ddof)))


def logsumexp(input: Any, dim: Axis, keepdim: bool = False) -> Tensor:
    """Return the logarithm of the sum of ``exp(input)`` over ``dim``, without overflow."""
    tensor = floating(input, "logsumexp")
    high = reduce("ReduceMax", tensor, dim, True)
    # An infinite maximum less itself is NaN: move by 0 there.
    high = arithmetic.where(emit("IsFinite", high, domain=arithmetic.OWN), high, 0.0)
    total = arithmetic.log(reduce("ReduceSum", arithmetic.exp(arithmetic.sub(tensor, high)), dim, True))
    kept = arithmetic.add(total, high)
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
    """Return the number of elements over ``axis`` that are not zero, as int32 or ``dtype``."""
    counted = cast(arithmetic.not_equal(need_tensor(x, "count_nonzero"), 0), "int32")
    return cast(reduce("ReduceSum", counted, axis, keep_dims), "int32" if dtype is None else to_type(dtype).name)


def topk(input: Any, k: int, dim: int | None = None, largest: bool = True,
         sorted: bool = True) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the ``k`` greatest (or smallest) elements along ``dim`` and their indices (int32)."""
    tensor = need_tensor(input, "topk")
    if not isinstance(k, int):
        raise ArgumentTypeError(f"topk was given k={k!r}", "give an integer")
    axis = axis_in(-1 if dim is None else dim, tensor.ndim, "topk")
    attrs = {"axis": axis, "largest": int(largest), "sorted": int(sorted)}
    values, indices = emit_many("TopK", (tensor, np.array([k], np.int64)), attrs, outputs=2)
    return values, cast(indices, "int32")


def l2_normalize(x: Any, axis: int = 0, epsilon: float = 1e-4) -> Tensor:
    """Return ``x / sqrt(max(sum(x**2), epsilon))`` along ``axis``."""
    tensor = need_tensor(x, "L2Normalize")
    total = reduce("ReduceSum", arithmetic.mul(tensor, tensor), axis, True)
    return arithmetic.div(tensor, arithmetic.sqrt(emit("Max", total, np.asarray(epsilon, tensor.type.dtype))))


def _with_mean(name: str, function: Callable[..., Tensor], what: str) -> Callable[..., tuple[Tensor, Tensor]]:
    return formula(
        f"the {what} and the mean over ``axis``",
        lambda input, axis=None, ddof=0, keepdims=False: (
            function(input, axis, ddof, keepdims),
            mean(floating(input, name), axis, keepdims),
        ),
    )


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
    return arithmetic.where(arithmetic.isnan(tensor), 0.0, tensor) if tensor.is_floating_point() else tensor


def nanmean(input: Any, axis: Axis = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the mean over ``axis`` of the elements that are not NaN."""
    tensor = floating(input, "nanmean")
    there = cast(arithmetic.logical_not(arithmetic.isnan(tensor)), tensor.type.dtype)
    count = reduce("ReduceSum", there, axis, keepdims)
    result = arithmetic.div(reduce("ReduceSum", _without_nan(tensor), axis, keepdims), count)
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
    running = emit("CumSum", arithmetic.exp(arithmetic.sub(tensor, high)), np.asarray(place, np.int64))
    return arithmetic.add(arithmetic.log(running), high)


def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """Return the differences of neighbours along ``axis``, ``n`` times."""
    tensor = need_tensor(x, "diff")
    place = axis_in(axis, tensor.ndim, "diff")
    parts = [item for item in (prepend, tensor, append) if item is not None]
    tensor = concat(parts, place) if len(parts) > 1 else tensor
    for _ in range(n):
        tensor = arithmetic.sub(*neighbours(tensor, place))
    return tensor


def neighbours(tensor: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Return the elements along an axis that have one before them, and those."""
    extent = tensor.shape[axis]
    return cut(tensor, [1], [extent], [axis], [1]), cut(tensor, [0], [extent - 1], [axis], [1])


def trapz(y: Any, x: Any = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """Return the integral along ``dim`` by the trapezoidal rule, at the points ``x`` or at steps of ``dx``."""
    tensor = floating(y, "trapz")
    place = axis_in(dim, tensor.ndim, "trapz")
    after, before = neighbours(tensor, place)
    step: Any = dx
    if x is not None:
        points = need_tensor(x, "trapz")
        step = diff(points, 1, 0 if points.ndim == 1 else place)
        if points.ndim == 1:
            step = reshaped(step, tuple(after.shape[place] if axis == place else 1 for axis in range(tensor.ndim)))
    return reduce("ReduceSum", arithmetic.div(arithmetic.mul(step, arithmetic.add(after, before)), 2.0), place, False)


def cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Tensor:
    """Return the covariances of variables, which are rows; a column is an observation."""
    tensor = floating(input, "cov")
    table = tensor if tensor.ndim == 2 else reshaped(tensor, (1, tensor.size))
    weights = None
    for item in (fweights, aweights):
        if item is not None:
            weight = cast(need_tensor(item, "cov"), table.type.dtype)
            weights = weight if weights is None else arithmetic.mul(weights, weight)
    if weights is None:
        count: Any = float(table.shape[1])
        centred = arithmetic.sub(table, mean(table, 1, True))
        result = arithmetic.div(matmul(centred, swapaxes(centred, 0, 1)), float(np.maximum(count - correction, 0.0)))
    else:
        whole = reduce("ReduceSum", weights, None, False)
        centre = arithmetic.div(reduce("ReduceSum", arithmetic.mul(table, weights), 1, True), whole)
        centred = arithmetic.sub(table, centre)
        lost: Any = float(correction)
        if aweights is not None and correction:
            squares = reduce("ReduceSum", arithmetic.mul(weights, cast(aweights, table.type.dtype)), None, False)
            lost = arithmetic.mul(arithmetic.div(squares, whole), float(correction))
        sums = matmul(arithmetic.mul(centred, weights), swapaxes(centred, 0, 1))
        result = arithmetic.div(sums, arithmetic.sub(whole, lost))
    return result if tensor.ndim == 2 else reshaped(result, ())


def intopk(x1: Any, x2: Any, k: int) -> Tensor:
    """Return whether the class ``x2`` names is among the ``k`` greatest of each row of ``x1``."""
    found = topk(x1, k)[1]
    return any(arithmetic.equal(found, expand_dims(cast(x2, "int32"), -1)), -1)


mv = spelled(matmul, mat="input", vec="other")
ger = outer
sum = formula("the sum over ``dim``; truth values and small integers are summed as int64",
    lambda input, dim=None, keepdim=False, *, dtype=None:
        reduce("ReduceSum", _wide(input, "sum", dtype), dim, keepdim))  # fmt: skip
mean = formula("the mean over ``axis``",
    of_tensor(lambda x, axis=None, keep_dims=False: reduce("ReduceMean", x, axis, keep_dims)))  # fmt: skip
argmax = formula("the index (int64) of the greatest element along ``dim``; in the flattened tensor if ``dim`` is None",
    of_tensor(lambda input, dim=None, keepdim=False: index_of("ArgMax", input, dim, keepdim, "int64")))  # fmt: skip
argmin = formula(
    "the index (int32) of the smallest element along ``axis``; in the flattened tensor if ``axis`` is None",
    of_tensor(lambda input, axis=None, keepdims=False: index_of("ArgMin", input, axis, keepdims, "int32")))  # fmt: skip
std = formula("the standard deviation over ``axis``",
    lambda input, axis=None, ddof=0, keepdims=False: arithmetic.sqrt(var(input, axis, ddof, keepdims)))  # fmt: skip
sort = formula("the elements in order along ``axis`` and the indices (int32) that they had",
    of_tensor(lambda input_x, axis=-1, descending=False:
        topk(input_x, input_x.shape[axis_in(axis, input_x.ndim, "sort")], axis, descending)))  # fmt: skip
argsort = formula("the indices (int32) that sort the tensor along ``axis``",
    lambda input, axis=-1, descending=False: sort(input, axis, descending)[1])  # fmt: skip
amax = formula("the greatest element over ``axis``",
    of_tensor(lambda input, axis=None, keepdims=False: reduce("ReduceMax", input, axis, keepdims)))  # fmt: skip
amin = formula("the smallest element over ``axis``",
    of_tensor(lambda input, axis=None, keepdims=False: reduce("ReduceMin", input, axis, keepdims)))  # fmt: skip
max, min = _with_index("max", "ArgMax", amax, "greatest"), _with_index("min", "ArgMin", amin, "smallest")
all, any = (
    _logical("all", "ReduceMin", "all elements over ``axis`` are"),
    _logical("any", "ReduceMax", "any element over ``axis`` is"),
)
reduce_sum = formula("the sum over ``axis``, in the element type of the tensor",
    of_tensor(lambda x, axis=(): reduce("ReduceSum", x, axis, False)))  # fmt: skip
aminmax = formula("the smallest and the greatest element over ``axis``",
    lambda input, *, axis=0, keepdims=False: (amin(input, axis, keepdims), amax(input, axis, keepdims)))  # fmt: skip
ptp = formula("the greatest less the smallest element over ``axis``",
    lambda input, axis=None, keepdims=False:
        arithmetic.sub(amax(input, axis, keepdims), amin(input, axis, keepdims)))  # fmt: skip
msort = formula("the elements in order along axis 0", lambda input: sort(input, 0)[0])
top_k = formula("the ``k`` greatest elements along the last axis and their indices (int32)",
    lambda input_x, k, sorted=True: topk(input_x, k, None, True, sorted))  # fmt: skip
quantile = formula("the elements at the shares ``q`` of the order along ``axis``, interpolated",
    in_floats(lambda input, q, axis=None, keepdims=False: np.quantile(input, q, axis, keepdims=keepdims)))  # fmt: skip
nanquantile = formula("``quantile`` of the elements that are not NaN",
    in_floats(lambda input, q, axis=None, keepdims=False:
        np.nanquantile(input, q, axis, keepdims=keepdims)))  # fmt: skip
reduce_mean = formula("the mean over ``axis``", lambda x, axis=(): mean(x, axis))
reduce_max = formula("the greatest element over ``axis``", lambda x, axis=(): amax(x, axis))
reduce_min = formula("the smallest element over ``axis``", lambda x, axis=(): amin(x, axis))
std_mean, var_mean = _with_mean("std_mean", std, "standard deviation"), _with_mean("var_mean", var, "variance")
cummax, cummin = _running("cummax", np.maximum, np.int64), _running("cummin", np.minimum, np.int32)
prod = formula("the product over ``axis``; truth values and small integers are multiplied as int64",
    lambda input, axis=None, keep_dims=False, dtype=None:
        reduce("ReduceProd", _wide(input, "prod", dtype), axis, keep_dims))  # fmt: skip
nansum = formula("the sum over ``axis`` of the elements that are not NaN",
    of_tensor(lambda input, axis=None, keepdims=False, *, dtype=None:
        sum(_without_nan(input), axis, keepdims, dtype=dtype)))  # fmt: skip

names.export(vars(), but="axes_of index_of l2_normalize neighbours product ptp reduce scaled_sum")
