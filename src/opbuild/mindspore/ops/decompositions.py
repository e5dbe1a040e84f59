"""Decompositions of matrices and solutions of linear equations, which numpy computes on data."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore.host import in_floats
from opbuild.mindspore.ops.declaration import formula, spelled

__all__ = [
    "cholesky", "cholesky_inverse", "cholesky_solve", "cond", "det", "geqrf", "inverse", "log_matrix_determinant",
    "logdet", "lstsq", "lu_solve", "lu_unpack", "matrix_determinant", "matrix_exp", "matrix_solve", "orgqr",
    "ormqr", "pinv", "qr", "slogdet", "svd",
]  # fmt: skip

det = formula("det", "the determinants of matrices", in_floats(lambda input: np.linalg.det(input)))
inverse = formula("inverse", "the inverses of matrices", in_floats(lambda input: np.linalg.inv(input)))
matrix_inverse = formula("matrix_inverse", "the inverses of matrices, or of the transposed ones",
                         in_floats(lambda x, adjoint=False: np.linalg.inv(_turned(x) if adjoint else x)))  # fmt: skip
cond = formula("cond", "the condition numbers of matrices for a norm",
               in_floats(lambda A, p=None: np.linalg.cond(A, p)))  # fmt: skip
matrix_solve = formula(
    "matrix_solve", "X of ``matrix @ X = rhs``",
    in_floats(lambda matrix, rhs, adjoint=False: np.linalg.solve(_turned(matrix) if adjoint else matrix, rhs)),
)  # fmt: skip
geqrf = formula("geqrf", "the reflectors of a QR decomposition below R, and their factors",
                in_floats(lambda input: _stacked(_packed, input)))  # fmt: skip


def _turned(matrix: Array) -> Array:
    return np.swapaxes(matrix, -1, -2)


matrix_determinant = spelled(det, "matrix_determinant")


@in_floats
def slogdet(input: Any) -> Any:
    """Return the signs of the determinants of matrices, and the logarithms of their absolute values."""
    sign, log = np.linalg.slogdet(input)
    return np.asarray(sign), np.asarray(log)


log_matrix_determinant = spelled(slogdet, "log_matrix_determinant")


@in_floats
def logdet(input: Any) -> Any:
    """Return the logarithms of the determinants of matrices; NaN where they are negative."""
    sign, log = np.linalg.slogdet(input)
    return np.where(sign > 0, log, np.where(sign == 0, -np.inf, np.nan))


@in_floats
def pinv(x: Any, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    """Return the pseudo-inverses of matrices; singular values below ``atol`` or ``rtol`` times the greatest are 0."""
    least = max(x.shape[-2:]) * np.finfo(np.float32).eps if rtol is None and atol is None else rtol or 0.0
    if atol is not None:
        greatest = np.linalg.svd(x, compute_uv=False).max(-1)
        least = np.maximum(least, np.asarray(atol) / greatest)
    return np.linalg.pinv(x, least, hermitian)


@in_floats
def cholesky(input_x: Any, upper: bool = False) -> Any:
    """Return the triangular factors of positive definite matrices."""
    factor = np.linalg.cholesky(input_x)
    return _turned(factor) if upper else factor


@in_floats
def cholesky_inverse(input_x: Any, upper: bool = False) -> Any:
    """Return the inverse of a positive definite matrix from its triangular factor."""
    return np.linalg.inv(_turned(input_x) @ input_x if upper else input_x @ _turned(input_x))


@in_floats
def cholesky_solve(input: Any, input2: Any, upper: bool = False) -> Any:
    """Return X of ``A @ X = input``, for the positive definite A with the triangular factor ``input2``."""
    return np.linalg.solve(_turned(input2) @ input2 if upper else input2 @ _turned(input2), input)


@in_floats
def triangular_solve(b: Any, A: Any, upper: bool = True, transpose: bool = False,
                     unitriangular: bool = False) -> Any:  # fmt: skip
    """Return X of ``A @ X = b`` for a triangular A, and A."""
    matrix = np.triu(A) if upper else np.tril(A)
    if unitriangular:
        matrix = matrix - matrix * np.eye(matrix.shape[-1]) + np.eye(matrix.shape[-1])
    return np.linalg.solve(_turned(matrix) if transpose else matrix, b), np.asarray(A)


@in_floats
def lstsq(input: Any, A: Any) -> Any:
    """Return X with the least squares of ``input @ X - A``."""
    wide = A if A.ndim > 1 else A[:, None]
    return np.linalg.lstsq(input, wide, None)[0]


@in_floats
def qr(input: Any, mode: Any = "reduced") -> Any:
    """Return an orthogonal and an upper triangular factor of matrices."""
    first, second = np.linalg.qr(input, mode)
    return first, second


@in_floats
def svd(input: Any, full_matrices: bool = False, compute_uv: bool = True) -> Any:
    """Return the singular values of matrices and, if asked, the left and right singular vectors (as columns)."""
    if not compute_uv:
        return np.linalg.svd(input, compute_uv=False)
    left, values, right = np.linalg.svd(input, full_matrices)
    return values, left, _turned(right)


def _packed(array: Array) -> tuple[Array, Array]:
    """Return what LAPACK's geqrf gives for one matrix: R with the reflectors below it, and their factors."""
    matrix = array.copy()
    rows, columns = matrix.shape
    factors = np.zeros(min(rows, columns))
    for k in range(min(rows, columns)):
        head, tail = matrix[k, k], np.linalg.norm(matrix[k + 1 :, k])
        if tail == 0:
            continue
        beta = -np.copysign(np.hypot(head, tail), head)
        factors[k] = (beta - head) / beta
        vector = np.concatenate([[1.0], matrix[k + 1 :, k] / (head - beta)])
        matrix[k:, k:] -= factors[k] * np.outer(vector, vector @ matrix[k:, k:])
        matrix[k + 1 :, k] = vector[1:]
    return matrix, factors


def _orthogonal(array: Array, factors: Array, columns: int) -> Array:
    """Return the first columns of the product of the reflectors that ``_packed`` keeps."""
    rows = array.shape[0]
    result = np.eye(rows)
    for k in reversed(range(len(factors))):
        vector = np.concatenate([np.zeros(k), [1.0], array[k + 1 :, k]])
        result -= factors[k] * np.outer(vector, vector @ result)
    return result[:, :columns]


def _stacked(function: Any, *arrays: Array) -> Any:
    """Apply a function of matrices to each of a stack; the first array decides how many axes lead."""
    lead = arrays[0].shape[:-2]
    if not lead:
        return function(*arrays)
    flat = [array.reshape(-1, *array.shape[len(lead) :]) for array in arrays]
    results = [function(*each) for each in zip(*flat, strict=True)]
    if isinstance(results[0], tuple):
        return tuple(np.stack(part).reshape(*lead, *part[0].shape) for part in zip(*results, strict=True))
    return np.stack(results).reshape(*lead, *results[0].shape)


@in_floats
def orgqr(input: Any, input2: Any) -> Any:
    """Return the first columns of the orthogonal matrix that the reflectors of ``geqrf`` make."""
    return _stacked(lambda matrix, factors: _orthogonal(matrix, factors, matrix.shape[1]), input, input2)


@in_floats
def ormqr(input: Any, tau: Any, other: Any, left: bool = True, transpose: bool = False) -> Any:
    """Return ``other`` times the orthogonal matrix that the reflectors of ``geqrf`` make."""

    def product(matrix: Array, factors: Array, target: Array) -> Array:
        whole = _orthogonal(matrix, factors, matrix.shape[0])
        whole = whole.T if transpose else whole
        return np.asarray(whole @ target if left else target @ whole)

    return _stacked(product, input, tau, other)


@in_floats
def lu_solve(b: Any, LU_data: Any, LU_pivots: Any) -> Any:
    """Return X of ``A @ X = b`` from the LU decomposition of A."""
    lower, upper = _triangles(LU_data)
    return np.linalg.solve(upper, np.linalg.solve(lower, b[_permutation(LU_pivots, len(b))]))


def _triangles(packed: Array) -> tuple[Array, Array]:
    count = min(packed.shape[-2:])
    lower = np.tril(packed[..., :count], -1) + np.eye(packed.shape[-2], count)
    return lower, np.triu(packed[..., :count, :])


def _permutation(pivots: Array, count: int) -> Array:
    order = np.arange(count)
    for place, other in enumerate(np.asarray(pivots).astype(np.int64) - 1):
        order[[place, other]] = order[[other, place]]
    return order


@in_floats
def lu_unpack(LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """Return the permutation and the two triangles that an LU decomposition keeps in one matrix."""

    def exchange(matrix: Array, pivots: Array) -> Array:
        rows = matrix.shape[0]
        return np.eye(rows)[:, _permutation(pivots, rows)] if pivots.ndim else np.eye(rows)

    lower, upper = _triangles(LU_data)
    return _stacked(exchange, LU_data, np.asarray(LU_pivots)), lower, upper


@in_floats
def matrix_exp(input: Any) -> Any:
    """Return the exponentials of matrices: by a Taylor series of the matrix halved often, then squared as often."""
    size = np.abs(input).sum(-1).max(initial=0.0)
    halvings = max(int(np.ceil(np.log2(size))) + 4, 0) if np.isfinite(size) and size > 0 else 0
    small = input / 2.0**halvings
    result = term = np.broadcast_to(np.eye(input.shape[-1]), input.shape)
    for k in range(1, 18):
        term = term @ small / k
        result = result + term
    for _ in range(halvings):
        result = result @ result
    return result
