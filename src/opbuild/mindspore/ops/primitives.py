"""Operators as classes: elementwise functions, reductions, linear algebra, losses, random numbers.

Each line names MindSpore's class, what computes it, and the attributes of its constructor with MindSpore's defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.dtype import float32, int32, int64, to_type
from opbuild.mindspore.execution import cast, emit, on_data
from opbuild.mindspore.ops import arithmetic, arranging, loss, matrices, random, reduction, shaping, special
from opbuild.mindspore.ops.declaration import Primitive, need_tensor, operator, primitive, primitives
from opbuild.mindspore.ops.pooling import only_nchw
from opbuild.mindspore.ops.reduction import bias_add, product
from opbuild.mindspore.ops.reduction import sum as total
from opbuild.mindspore.ops.shaping import gather, reshaped
from opbuild.mindspore.tensor import Tensor

# Activations
HShrink = primitive(arithmetic.hardshrink, lambd=0.5)


@operator
def Softmax(logits: Any, *, axis: int | tuple[int, ...] = -1) -> Tensor:
    """Return the softmax along one axis."""
    if isinstance(axis, tuple):
        if len(axis) != 1:
            raise ArgumentValueError(f"Softmax along the axes {axis}", "give one axis; flatten the others first")
        axis = axis[0]
    return arithmetic.softmax(logits, axis)


GeLU = Gelu = primitive(lambda x: arithmetic.gelu(x, "tanh"),
                        "Return the GELU with tanh, which is MindSpore's primitive.")  # fmt: skip


# Reductions
def _reduction(op_type: str) -> Callable[..., Tensor]:
    def function(x: Any, axis: Any = (), *, keep_dims: bool) -> Tensor:
        return reduction.reduce(op_type, need_tensor(x, op_type), axis, keep_dims)

    function.__doc__ = f"Apply {op_type} over ``axis``, over all if it is empty."
    return function


@operator
def ReduceSum(x: Any, axis: Any = (), *, keep_dims: bool = False, skip_mode: bool = False) -> Tensor:
    """Return the sum over ``axis``; an empty axis means all, or with ``skip_mode`` none."""
    tensor = need_tensor(x, "ReduceSum")
    if skip_mode and (axis is None or axis == ()):
        return tensor
    if tensor.type.dtype == "bool":
        tensor = cast(tensor, "int64")
    return reduction.reduce("ReduceSum", tensor, axis, keep_dims)


def _index_of(op_type: str, which: str) -> Callable[..., Tensor]:
    def function(x: Any, axis: int, output_type: Any) -> Tensor:
        tensor = need_tensor(x, op_type)
        return reduction.index_of(op_type, tensor, axis, False, to_type(output_type).name)

    function.__doc__ = f"Return the index of the {which} element along ``axis``."
    return function


def _with_value(op_type: str, extreme: str) -> Callable[..., tuple[Tensor, Tensor]]:
    def function(x: Any, axis: int, keep_dims: bool) -> tuple[Tensor, Tensor]:
        tensor = need_tensor(x, op_type)
        index = reduction.index_of(op_type, tensor, axis, keep_dims, "int64")
        return index, reduction.reduce(extreme, tensor, axis, keep_dims)

    function.__doc__ = f"Return the index ({op_type}) and the value along ``axis``."
    return function


@operator
def CumSum(x: Any, axis: Any, *, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Return the running sums along ``axis``."""
    tensor = need_tensor(x, "CumSum")
    return emit("CumSum", tensor, np.asarray(int(axis), np.int64), exclusive=int(exclusive), reverse=int(reverse))


ReduceAll = primitive(lambda x, axis=(), *, keep_dims=False: reduction.all(x, axis, keep_dims))
ReduceAny = primitive(lambda x, axis=(), *, keep_dims=False: reduction.any(x, axis, keep_dims))
ReduceMax = primitive(_reduction("ReduceMax"), keep_dims=False)
ReduceMean = primitive(_reduction("ReduceMean"), keep_dims=False)
ReduceMin = primitive(_reduction("ReduceMin"), keep_dims=False)
ReduceProd = primitive(_reduction("ReduceProd"), keep_dims=False)
Argmax = primitive(_index_of("ArgMax", "greatest"), axis=-1, output_type=int32)
Argmin = primitive(_index_of("ArgMin", "smallest"), axis=-1, output_type=int32)
ArgMaxWithValue = primitive(_with_value("ArgMax", "ReduceMax"), axis=0, keep_dims=False)
ArgMinWithValue = primitive(_with_value("ArgMin", "ReduceMin"), axis=0, keep_dims=False)
L2Normalize = primitive(reduction.l2_normalize, axis=0, epsilon=1e-4)


# Products
@operator
def BiasAdd(x: Any, bias: Any, *, data_format: str = "NCHW") -> Tensor:
    """Return the tensor plus one number for each channel."""
    only_nchw(data_format)
    return bias_add(x, bias)


MatMul = primitive(
    lambda a, b, *, transpose_a=False, transpose_b=False: product(a, b, transpose_a, transpose_b, "MatMul", 2),
    "Return the product of two matrices, each transposed first if asked.",
)  # fmt: skip
BatchMatMul = primitive(
    lambda a, b, *, transpose_a=False, transpose_b=False: product(a, b, transpose_a, transpose_b, "BatchMatMul", None),
    "Return the products of two stacks of matrices, each matrix transposed first if asked.",
)  # fmt: skip


@operator
def NLLLoss(x: Any, y: Any, weight: Any, *, reduction: str = "mean", ignore_index: int = -100) -> tuple[Tensor, Tensor]:
    """Return the loss and the weights that count."""
    used = gather(weight, y, 0)
    return loss.nll_loss(x, y, weight, ignore_index, reduction), total(used)


BCEWithLogitsLoss = primitive(
    lambda x, y, weight=None, pos_weight=None, *, reduction="mean":
        loss.binary_cross_entropy_with_logits(x, y, weight, pos_weight, reduction),
    "Return the cross entropy of ``sigmoid(x)`` and labels, reduced.",
)  # fmt: skip
KLDivLoss = primitive(loss.kl_div, reduction="mean")
MultiMarginLoss = primitive(
    lambda x, target, weight=None, *, p=1, margin=1.0, reduction="mean":
        loss.multi_margin_loss(x, target, p, margin, weight, reduction),
)  # fmt: skip
MultilabelMarginLoss = primitive(loss.multilabel_margin, reduction="mean")
SigmoidCrossEntropyWithLogits = primitive(lambda x, y: loss.binary_cross_entropy_with_logits(x, y, reduction="none"))
SoftmaxCrossEntropyWithLogits = primitive(loss.softmax_cross_entropy)
SparseSoftmaxCrossEntropyWithLogits = primitive(loss.sparse_softmax_cross_entropy, "", "", is_grad=False)


# Arithmetic
Logit = primitive(arithmetic.logit, eps=-1.0)


@operator
def L2Loss(x: Any) -> Tensor:
    """Return half the sum of squares."""
    return arithmetic.mul(reduction.reduce_sum(arithmetic.square(x)), 0.5)


@operator
def SquareSumAll(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Return the sums of squares of two tensors."""
    return reduction.reduce_sum(arithmetic.square(x)), reduction.reduce_sum(arithmetic.square(y))


# Reductions and running functions
@operator
def CumProd(x: Any, axis: Any, *, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Return the running products along ``axis``."""
    place = np.asarray(int(axis) % x.ndim, np.int64)
    return emit("CumProd", x, place, exclusive=int(exclusive), reverse=int(reverse))


@operator
def Bincount(array: Any, size: Any, weights: Any) -> Tensor:
    """Return the sums of the weights of each integer below ``size``."""
    result: Tensor = arranging.bincount(array, weights, int(size))
    return result[: int(size)]  # type: ignore[index,no-any-return]


@operator
@on_data
def NthElement(input: Any, n: Any, *, reverse: bool = False) -> Any:
    """Return the ``n``-th smallest (or greatest) element along the last axis."""
    ordered = np.sort(input, -1)
    place = int(np.asarray(n))
    return ordered[..., -1 - place if reverse else place]


@operator
def Median(x: Any, *, global_median: bool = False, axis: int = 0, keep_dims: bool = False,
           ignore_nan: bool = False) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the middle element and its index."""
    if global_median:
        return reduction.median(reshaped(x, (x.size,)), 0)
    return (reduction.nanmedian if ignore_nan else reduction.median)(x, axis, keep_dims)


CountNonZero = primitive(lambda x, *, dims=None: reduction.count_nonzero(x, () if dims is None else dims, False, int64),
                         "Return how many elements over ``dims`` are not zero, as int64.")  # fmt: skip
EuclideanNorm = primitive(matrices.euclidean_norm, keep_dims=False)
Histogram = primitive(arranging.histc, bins=100, min=0.0, max=0.0)
HistogramFixedWidth = primitive(arranging.histogram_fixed_width, "", "nbins", nbins=..., dtype="int32")
ReduceStd = primitive(
    lambda x, *, axis=(), unbiased=True, keep_dims=False: reduction.std_mean(x, axis or None, int(unbiased), keep_dims),
    "Return the standard deviation and the mean.",
)  # fmt: skip


LpNorm = primitive(matrices.vector_norm, "Return the norm of order ``p`` over axes.", "p axis keep_dims", axis=..., p=2,
                   keep_dims=False, epsilon=1e-12)  # fmt: skip
NuclearNorm = primitive(matrices.nuclear_norm, dim=None, keepdim=False)
Quantile = primitive(
    lambda x, q, *, dim=None, keep_dims=False, ignore_nan=False:
        (reduction.nanquantile if ignore_nan else reduction.quantile)(x, q, dim, keep_dims),
    "Return the elements at the shares ``q`` of the order.",
)  # fmt: skip

# Linear algebra
Cross = primitive(matrices.cross, dim=-65530)
MatrixInverse = primitive(matrices.matrix_inverse, adjoint=False)
Renorm = primitive(matrices.renorm, "", "p dim maxnorm", p=..., dim=..., maxnorm=...)


@operator
def Svd(x: Any, *, full_matrices: bool = False, compute_uv: bool = True) -> Any:
    """Return the singular values and vectors; zeros for the vectors if they are not asked for."""
    if compute_uv:
        return matrices.svd(x, full_matrices)
    none = Tensor.of(np.zeros(1, x.type.dtype))
    return matrices.svd(x, compute_uv=False), none, none


@operator
@on_data
def MatrixTriangularSolve(matrix: Any, rhs: Any, *, lower: bool = True, adjoint: bool = False) -> Any:
    """Return X of ``matrix @ X = rhs`` for triangular matrices."""
    half = np.tril(matrix) if lower else np.triu(matrix)
    return np.linalg.solve(np.swapaxes(half, -1, -2) if adjoint else half, rhs)


@operator
@on_data
def TridiagonalMatMul(superdiag: Any, maindiag: Any, subdiag: Any, rhs: Any) -> Any:
    """Return the product of a matrix of three diagonals and ``rhs``."""
    result = maindiag[..., 0, :, None] * rhs
    result[..., :-1, :] += superdiag[..., 0, :-1, None] * rhs[..., 1:, :]
    result[..., 1:, :] += subdiag[..., 0, 1:, None] * rhs[..., :-1, :]
    return result


Einsum = primitive(lambda tensors, *, equation: matrices.einsum(equation, *tensors),
                   "Return the sum of products that the equation describes.")  # fmt: skip
Lstsq = primitive(matrices.lstsq, "Return X with the least squares of ``matrix @ X - rhs``.", "", fast=True,
                  l2_regularizer=0.0)  # fmt: skip
Qr = primitive(lambda x, *, full_matrices=False: matrices.qr(x, "complete" if full_matrices else "reduced"),
               "Return an orthogonal and an upper triangular factor.")  # fmt: skip


# Random numbers
def _seeded(function: Any, doc: str = "") -> Any:
    """Return a function that takes a primitive's two seeds as one."""

    def drawn(*operands: Any, seed: int, seed2: int, **named: Any) -> Any:
        return function(*operands, seed=_seed(seed, seed2), **named)

    drawn.__doc__ = doc or function.__doc__
    return drawn


def _seed(seed: int, seed2: int) -> int | None:
    return seed * 65537 + seed2 if seed or seed2 else None


@operator
def TruncatedNormal(shape: Any, *, dtype: Any = float32, seed: int = 0, seed2: int = 0) -> Tensor:
    """Return numbers drawn from the normal distribution within 2 deviations."""

    def values(generator: Any) -> Any:
        drawn = generator.standard_normal(tuple(shape))
        while (outside := np.abs(drawn) > 2).any():
            drawn = np.where(outside, generator.standard_normal(drawn.shape), drawn)
        return drawn

    return random.drawn("TruncatedNormal", values, dtype, _seed(seed, seed2))


RandomCategorical = primitive(random.random_categorical, dtype=int64)
RandomChoiceWithMask = primitive(_seeded(random.choice_with_mask), count=256, seed=0, seed2=0)
RandomShuffle = primitive(_seeded(random.shuffle), seed=0, seed2=0)
RandpermV2 = primitive(random.randperm, seed=0, offset=0, dtype=int64)
Gamma = primitive(_seeded(random.gamma), seed=0, seed2=0)
Multinomial = primitive(
    lambda x, num_samples, *, seed=0, seed2=0, dtype=int32:
        cast(random.multinomial(x, int(num_samples), True, _seed(seed, seed2)), dtype.name),
    "Return indices drawn with the probabilities of each row.",
)  # fmt: skip
Poisson = primitive(
    lambda shape, mean, *, seed=0, seed2=0: cast(random.poisson(shape, mean, _seed(seed, seed2)), "int32"),
    "Return integers (int32) drawn from Poisson distributions.",
)  # fmt: skip
StandardLaplace = primitive(_seeded(random.standard_laplace), seed=0, seed2=0)
StandardNormal = primitive(_seeded(random.standard_normal), seed=0, seed2=0)
UniformInt = primitive(
    _seeded(lambda shape, low, high, seed: random.uniform(shape, low, high, seed, int32),
                          "Return integers (int32) drawn evenly from the first number to below the second."),
    seed=0, seed2=0,
)  # fmt: skip
UniformReal = primitive(
    _seeded(lambda shape, seed: random.uniform(shape, 0.0, 1.0, seed), "Return numbers drawn evenly from [0, 1)."),
    seed=0, seed2=0,
)  # fmt: skip


@operator
@on_data
def CheckNumerics(x: Any) -> Any:
    """Return the tensor if its elements are finite."""
    for name, found in (("Inf", np.isinf(x).any()), ("NaN", np.isnan(x).any())):
        if found:
            raise ArgumentValueError(f"CheckNumerics was given a tensor with {name} values")
    return x


@operator
def CumulativeLogsumexp(x: Any, axis: Any, *, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Return the logarithms of the running sums of ``exp(x)``."""
    if exclusive:
        raise ArgumentValueError("CumulativeLogsumexp was given exclusive=True", "opbuild has it for exclusive=False")
    place = int(axis)
    turned = shaping.flip(x, (place,)) if reverse else x
    result = reduction.logcumsumexp(turned, place)
    return shaping.flip(result, (place,)) if reverse else result


# Windows, assignment, marks
BartlettWindow = primitive(shaping.bartlett_window, periodic=True, dtype=float32)
BlackmanWindow = primitive(shaping.blackman_window, periodic=True, dtype=float32)
HammingWindow = primitive(shaping.hamming_window, periodic=True, alpha=0.54, beta=0.46, dtype=float32)
LogSpace = primitive(shaping.logspace, steps=10, base=10, dtype=float32)

# Without attributes
globals().update(primitives(
    AccumulateNV2=arithmetic.accumulate_n, Betainc=special.betainc, DivNoNan=arithmetic.div_no_nan,
    HSigmoid=arithmetic.hardsigmoid, HSwish=arithmetic.hardswish, Invert=arithmetic.bitwise_not,
    LeftShift=arithmetic.bitwise_left_shift, LerpScalar=arithmetic.lerp, Mod=arithmetic.fmod,
    MulNoNan=arithmetic.mul_no_nan, RealDiv=arithmetic.div, RightShift=arithmetic.bitwise_right_shift,
    Rint=arithmetic.round, SquaredDifference=arithmetic.squared_difference,
))  # fmt: skip

names.call_rows(vars(), __name__)
__all__ = names.public(vars(), Primitive)
