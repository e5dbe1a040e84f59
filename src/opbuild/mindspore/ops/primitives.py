"""More operators as classes: arithmetic, special functions, linear algebra, random numbers, reductions.

Each line names MindSpore's class, what computes it, and the attributes of its constructor with MindSpore's defaults.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.dtype import float32, int32, int64
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.host import on_data
from opbuild.mindspore.ops import (
    arithmetic,
    assignment,
    creation,
    decompositions,
    elementwise,
    linear,
    matrices,
    random,
    reduction,
    selection,
    shaping,
    special,
    statistics,
)
from opbuild.mindspore.ops.primitive import Primitive, primitive, primitives
from opbuild.mindspore.ops.shaping import reshaped
from opbuild.mindspore.tensor import Tensor

# Arithmetic
ApproximateEqual = primitive("ApproximateEqual", elementwise.approximate_equal, tolerance=1e-05)
Logit = primitive("Logit", elementwise.logit, eps=-1.0)
NanToNum = primitive("NanToNum", elementwise.nan_to_num, nan=None, posinf=None, neginf=None)


def _l2_loss(x: Any) -> Tensor:
    """Return half the sum of squares."""
    return arithmetic.mul(statistics.reduce_sum(arithmetic.square(x)), 0.5)


def _square_sums(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Return the sums of squares of two tensors."""
    return statistics.reduce_sum(arithmetic.square(x)), statistics.reduce_sum(arithmetic.square(y))


# Special functions
Mvlgamma = primitive("Mvlgamma", special.mvlgamma, p=...)


# Reductions and running functions
def _count_nonzero(x: Any, dims: Any) -> Tensor:
    """Return how many elements over ``dims`` are not zero, as int64."""
    return reduction.count_nonzero(x, () if dims is None else dims, False, int64)


def _cumprod(x: Any, axis: Any, exclusive: bool, reverse: bool) -> Tensor:
    """Return the running products along ``axis``."""
    place = np.asarray(int(axis) % x.ndim, np.int64)
    return emit("CumProd", x, place, exclusive=int(exclusive), reverse=int(reverse))


def _bincount(array: Any, size: Any, weights: Any) -> Tensor:
    """Return the sums of the weights of each integer below ``size``."""
    result: Tensor = selection.bincount(array, weights, int(size))
    return result[: int(size)]  # type: ignore[index,no-any-return]


def _std(x: Any, axis: Any, unbiased: bool, keep_dims: bool) -> tuple[Tensor, Tensor]:
    """Return the standard deviation and the mean."""
    return statistics.std_mean(x, axis or None, int(unbiased), keep_dims)


@on_data
def _nth(input: Any, n: Any, reverse: bool) -> Any:
    """Return the ``n``-th smallest (or greatest) element along the last axis."""
    ordered = np.sort(input, -1)
    place = int(np.asarray(n))
    return ordered[..., -1 - place if reverse else place]


def _median(x: Any, global_median: bool, axis: int, keep_dims: bool, ignore_nan: bool) -> tuple[Tensor, Tensor]:
    """Return the middle element and its index."""
    if global_median:
        return statistics.median(reshaped(x, (x.size,)), 0)
    return (statistics.nanmedian if ignore_nan else statistics.median)(x, axis, keep_dims)


CountNonZero = primitive("CountNonZero", _count_nonzero, dims=None)
CumProd = primitive("CumProd", _cumprod, exclusive=False, reverse=False)
Cummax = primitive("Cummax", statistics.cummax, axis=...)
Cummin = primitive("Cummin", statistics.cummin, axis=...)
EuclideanNorm = primitive("EuclideanNorm", matrices.euclidean_norm, keep_dims=False)
Histogram = primitive("Histogram", selection.histc, bins=100, min=0.0, max=0.0)
HistogramFixedWidth = primitive("HistogramFixedWidth", selection.histogram_fixed_width, "", "nbins",
                                nbins=..., dtype="int32")  # fmt: skip
InTopK = primitive("InTopK", statistics.intopk, k=...)
Median = primitive("Median", _median, global_median=False, axis=0, keep_dims=False, ignore_nan=False)
NthElement = primitive("NthElement", _nth, reverse=False)
ReduceStd = primitive("ReduceStd", _std, axis=(), unbiased=True, keep_dims=False)


LpNorm = primitive("LpNorm", matrices.vector_norm, "Return the norm of order ``p`` over axes.", "p axis keep_dims",
                   axis=..., p=2, keep_dims=False, epsilon=1e-12)  # fmt: skip
NuclearNorm = primitive("NuclearNorm", matrices.nuclear_norm, dim=None, keepdim=False)
Quantile = primitive(
    "Quantile", lambda x, q, dim, keep_dims, ignore_nan: (
        statistics.nanquantile if ignore_nan else statistics.quantile)(x, q, dim, keep_dims),
    "Return the elements at the shares ``q`` of the order.", dim=None, keep_dims=False, ignore_nan=False,
)  # fmt: skip

# Linear algebra
Cdist = primitive("Cdist", matrices.cdist, p=2.0)
Cholesky = primitive("Cholesky", decompositions.cholesky, upper=False)
CholeskyInverse = primitive("CholeskyInverse", decompositions.cholesky_inverse, upper=False)
CholeskySolve = primitive("CholeskySolve", decompositions.cholesky_solve, upper=False)
Cross = primitive("Cross", matrices.cross, dim=-65530)
MatrixInverse = primitive("MatrixInverse", decompositions.matrix_inverse, adjoint=False)
MatrixPower = primitive("MatrixPower", matrices.matrix_power, n=...)
MatrixSolve = primitive("MatrixSolve", decompositions.matrix_solve, adjoint=False)
Ormqr = primitive("Ormqr", decompositions.ormqr, left=True, transpose=False)
Pdist = primitive("Pdist", matrices.pdist, p=2.0)
Renorm = primitive("Renorm", matrices.renorm, "", "p dim maxnorm", p=..., dim=..., maxnorm=...)


def _einsum(tensors: Any, equation: str) -> Tensor:
    """Return the sum of products that the equation describes."""
    return matrices.einsum(equation, *tensors)


def _svd(x: Any, full_matrices: bool, compute_uv: bool) -> Any:
    """Return the singular values and vectors; zeros for the vectors if they are not asked for."""
    if compute_uv:
        return decompositions.svd(x, full_matrices)
    none = Tensor.of(np.zeros(1, x.type.dtype))
    return decompositions.svd(x, compute_uv=False), none, none


def _qr(x: Any, full_matrices: bool) -> Any:
    """Return an orthogonal and an upper triangular factor."""
    return decompositions.qr(x, "complete" if full_matrices else "reduced")


@on_data
def _triangular(matrix: Any, rhs: Any, lower: bool, adjoint: bool) -> Any:
    """Return X of ``matrix @ X = rhs`` for triangular matrices."""
    half = np.tril(matrix) if lower else np.triu(matrix)
    return np.linalg.solve(np.swapaxes(half, -1, -2) if adjoint else half, rhs)


@on_data
def _tridiagonal(superdiag: Any, maindiag: Any, subdiag: Any, rhs: Any) -> Any:
    """Return the product of a matrix of three diagonals and ``rhs``."""
    result = maindiag[..., 0, :, None] * rhs
    result[..., :-1, :] += superdiag[..., 0, :-1, None] * rhs[..., 1:, :]
    result[..., 1:, :] += subdiag[..., 0, 1:, None] * rhs[..., :-1, :]
    return result


Einsum = primitive("Einsum", _einsum, equation=...)
Lstsq = primitive("Lstsq", decompositions.lstsq, "Return X with the least squares of ``matrix @ X - rhs``.", "",
                  fast=True, l2_regularizer=0.0)  # fmt: skip
LuUnpack = primitive("LuUnpack", decompositions.lu_unpack, unpack_data=True, unpack_pivots=True)
MatrixTriangularSolve = primitive("MatrixTriangularSolve", _triangular, lower=True, adjoint=False)
Svd = primitive("Svd", _svd, full_matrices=False, compute_uv=True)
Qr = primitive("Qr", _qr, full_matrices=False)


# Random numbers
def _seeded(function: Any, doc: str = "") -> Any:
    """Return a function that takes a primitive's two seeds as one."""

    def drawn(*operands: Any, seed: int, seed2: int, **named: Any) -> Any:
        return function(*operands, seed=_seed(seed, seed2), **named)

    drawn.__doc__ = doc or function.__doc__
    return drawn


def _seed(seed: int, seed2: int) -> int | None:
    return seed * 65537 + seed2 if seed or seed2 else None


def _poisson(shape: Any, mean: Any, seed: int, seed2: int) -> Tensor:
    """Return integers (int32) drawn from Poisson distributions."""
    return cast(random.poisson(shape, mean, _seed(seed, seed2)), "int32")


def _multinomial(x: Any, num_samples: int, seed: int, seed2: int, dtype: Any) -> Tensor:
    """Return indices drawn with the probabilities of each row."""
    return cast(random.multinomial(x, int(num_samples), True, _seed(seed, seed2)), dtype.name)


def _truncated_normal(shape: Any, dtype: Any, seed: int, seed2: int) -> Tensor:
    """Return numbers drawn from the normal distribution within 2 deviations."""

    def values(generator: Any) -> Any:
        drawn = generator.standard_normal(tuple(shape))
        while (outside := np.abs(drawn) > 2).any():
            drawn = np.where(outside, generator.standard_normal(drawn.shape), drawn)
        return drawn

    return random.drawn("TruncatedNormal", values, dtype, _seed(seed, seed2))


RandomCategorical = primitive("RandomCategorical", random.random_categorical, dtype=int64)
RandomChoiceWithMask = primitive("RandomChoiceWithMask", _seeded(random.choice_with_mask), count=256, seed=0, seed2=0)
RandomShuffle = primitive("RandomShuffle", _seeded(random.shuffle), seed=0, seed2=0)
RandpermV2 = primitive("RandpermV2", random.randperm, seed=0, offset=0, dtype=int64)
Gamma = primitive("Gamma", _seeded(random.gamma), seed=0, seed2=0)
Multinomial = primitive("Multinomial", _multinomial, seed=0, seed2=0, dtype=int32)
Poisson = primitive("Poisson", _poisson, seed=0, seed2=0)
StandardLaplace = primitive("StandardLaplace", _seeded(random.standard_laplace), seed=0, seed2=0)
StandardNormal = primitive("StandardNormal", _seeded(random.standard_normal), seed=0, seed2=0)
TruncatedNormal = primitive("TruncatedNormal", _truncated_normal, dtype=float32, seed=0, seed2=0)
UniformInt = primitive(
    "UniformInt", _seeded(lambda shape, low, high, seed: random.uniform(shape, low, high, seed, int32),
                          "Return integers (int32) drawn evenly from the first number to below the second."),
    seed=0, seed2=0,
)  # fmt: skip
UniformReal = primitive(
    "UniformReal", _seeded(lambda shape, seed: random.uniform(shape, 0.0, 1.0, seed),
                           "Return numbers drawn evenly from [0, 1)."),
    seed=0, seed2=0,
)  # fmt: skip


@on_data
def _check_numerics(x: Any) -> Any:
    """Return the tensor if its elements are finite."""
    for name, found in (("Inf", np.isinf(x).any()), ("NaN", np.isnan(x).any())):
        if found:
            raise ArgumentValueError(f"CheckNumerics was given a tensor with {name} values")
    return x


def _cumulative_log_sum_exp(x: Any, axis: Any, *, exclusive: bool, reverse: bool) -> Tensor:
    """Return the logarithms of the running sums of ``exp(x)``."""
    if exclusive:
        raise ArgumentValueError("CumulativeLogsumexp was given exclusive=True", "opbuild has it for exclusive=False")
    place = int(axis)
    turned = shaping.flip(x, (place,)) if reverse else x
    result = statistics.logcumsumexp(turned, place)
    return shaping.flip(result, (place,)) if reverse else result


CumulativeLogsumexp = primitive("CumulativeLogsumexp", _cumulative_log_sum_exp, exclusive=False, reverse=False)


# Windows, assignment, marks
BartlettWindow = primitive("BartlettWindow", creation.bartlett_window, periodic=True, dtype=float32)
BlackmanWindow = primitive("BlackmanWindow", creation.blackman_window, periodic=True, dtype=float32)
HammingWindow = primitive("HammingWindow", creation.hamming_window, periodic=True, alpha=0.54, beta=0.46, dtype=float32)
LogSpace = primitive("LogSpace", creation.logspace, steps=10, base=10, dtype=float32)

# Without attributes
globals().update(primitives(
    AccumulateNV2=elementwise.accumulate_n, Angle=elementwise.angle, Assign=assignment.assign,
    AssignAdd=assignment.assign_add, AssignSub=assignment.assign_sub, BesselI0=special.bessel_i0,
    BesselI0e=special.bessel_i0e, BesselI1=special.bessel_i1, BesselI1e=special.bessel_i1e, BesselJ0=special.bessel_j0,
    BesselJ1=special.bessel_j1, BesselK0=special.bessel_k0, BesselK0e=special.bessel_k0e, BesselK1=special.bessel_k1,
    BesselK1e=special.bessel_k1e, BesselY0=special.bessel_y0, BesselY1=special.bessel_y1, Betainc=special.betainc,
    Bincount=_bincount, CheckNumerics=_check_numerics, Conj=elementwise.conj, Depend=assignment.depend,
    Digamma=special.digamma, DivNoNan=elementwise.div_no_nan, Eps=elementwise.eps, Erfinv=special.erfinv,
    Fmax=elementwise.fmax, Fmin=elementwise.fmin, Gcd=special.gcd, Geqrf=decompositions.geqrf, Ger=linear.outer,
    Heaviside=elementwise.heaviside, Igamma=special.igamma, Igammac=special.igammac, Imag=elementwise.imag,
    L2Loss=_l2_loss, Lcm=special.lcm, LerpScalar=arithmetic.lerp, Lgamma=special.lgamma,
    LogMatrixDeterminant=decompositions.log_matrix_determinant, LuSolve=decompositions.lu_solve,
    MatrixDeterminant=decompositions.matrix_determinant, MatrixExp=decompositions.matrix_exp,
    MulNoNan=elementwise.mul_no_nan, NextAfter=special.nextafter, Orgqr=decompositions.orgqr,
    Polygamma=special.polygamma, PopulationCount=special.population_count, Real=elementwise.real, Sinc=elementwise.sinc,
    SquareSumAll=_square_sums, StopGradient=assignment.stop_gradient, Trace=matrices.trace,
    TridiagonalMatMul=_tridiagonal, TruncateDiv=elementwise.truncate_div, TruncateMod=elementwise.truncate_mod,
    Xdivy=elementwise.xdivy, Xlogy=elementwise.xlogy, Zeta=special.zeta,
))  # fmt: skip

__all__ = names.public(vars(), Primitive)
