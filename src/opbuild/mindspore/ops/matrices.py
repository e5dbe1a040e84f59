"""Linear algebra and special functions; decompositions and most special functions are computed on data, by numpy."""

from __future__ import annotations

import functools
import math
from functools import lru_cache
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError, axis_in
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.execution import cast, emit, in_floats, on_data
from opbuild.mindspore.ops import arithmetic, shaping
from opbuild.mindspore.ops.arranging import diagonal
from opbuild.mindspore.ops.declaration import floating, formula, need_tensor, of_tensor, spelled
from opbuild.mindspore.ops.reduction import Axis, axes_of, bmm, matmul, mv, outer, reduce, scaled_sum
from opbuild.mindspore.ops.reduction import sum as total
from opbuild.mindspore.tensor import Tensor


def einsum(equation: str, *operands: Any) -> Tensor:
    """Return the sum of products that an equation such as ``"ij,jk->ik"`` describes."""
    tensors = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    return emit("Einsum", *(need_tensor(item, "einsum") for item in tensors), equation=equation.replace(" ", ""))


def batch_dot(x1: Any, x2: Any, axes: Any = None) -> Tensor:
    """Return the sums of products of each sample over an axis of ``x1`` and one of ``x2``."""
    first, second = need_tensor(x1, "batch_dot"), need_tensor(x2, "batch_dot")
    if axes is None:
        axes = (first.ndim - 1, max(second.ndim - 2, 1))
    pair = (axes, axes) if isinstance(axes, int) else tuple(axes)
    left, right = axis_in(pair[0], first.ndim, "batch_dot"), axis_in(pair[1], second.ndim, "batch_dot")
    rows = _last(first, left)
    columns = _last(second, right)
    batch, depth = first.shape[0], first.shape[left]
    result = matmul(
        shaping.reshaped(rows, (batch, rows.size // (batch * depth), depth)),
        shaping.swapaxes(shaping.reshaped(columns, (batch, columns.size // (batch * depth), depth)), 1, 2),
    )
    shape = (*rows.shape[:-1], *columns.shape[1:-1]) if rows.ndim + columns.ndim > 4 else (batch, 1)
    return shaping.reshaped(result, shape)


def _last(tensor: Tensor, axis: int) -> Tensor:
    return shaping.transpose(tensor, (*(item for item in range(tensor.ndim) if item != axis), axis))


def bidense(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Tensor:
    """Return ``input1 @ weight[k] @ input2`` for each k, plus the bias."""
    first, second = need_tensor(input1, "bidense"), need_tensor(input2, "bidense")
    rows = shaping.reshaped(first, (first.size // first.shape[-1], first.shape[-1]))
    columns = shaping.reshaped(second, (second.size // second.shape[-1], second.shape[-1]))
    result = einsum("bn,anm,bm->ba", rows, weight, columns)
    result = result if bias is None else arithmetic.add(result, bias)
    return shaping.reshaped(result, (*first.shape[:-1], weight.shape[0]))


def cross(input: Any, other: Any, dim: int | None = None) -> Tensor:
    """Return the vector products along an axis of extent 3: the first of them if ``dim`` is None."""
    first, second = need_tensor(input, "cross"), need_tensor(other, "cross")
    if dim is None or dim == -65530:
        dim = next((axis for axis, extent in enumerate(first.shape) if extent == 3), None)
        if dim is None:
            raise ArgumentValueError(f"cross of shape {first.shape}", "an axis must have size 3")
    ahead = arithmetic.mul(shaping.roll(first, -1, dim), shaping.roll(second, -2, dim))
    return arithmetic.sub(ahead, arithmetic.mul(shaping.roll(first, -2, dim), shaping.roll(second, -1, dim)))


def kron(input: Any, other: Any) -> Tensor:
    """Return the Kronecker product."""
    first, second = need_tensor(input, "kron"), need_tensor(other, "kron")
    rank = max(first.ndim, second.ndim)
    left, right = ((1,) * (rank - item.ndim) + item.shape for item in (first, second))
    wide = arithmetic.mul(
        shaping.reshaped(first, tuple(part for extent in left for part in (extent, 1))),
        shaping.reshaped(second, tuple(part for extent in right for part in (1, extent))),
    )
    return shaping.reshaped(wide, tuple(a * b for a, b in zip(left, right, strict=True)))


def norm(A: Any, ord: Any = None, dim: Axis = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the norm of vectors, or of matrices if an order is given with two axes.

    Args:
        A: A tensor.
        ord: None (Euclidean), a number, ``inf``, ``-inf``, or of matrices ``"fro"`` or ``"nuc"`` too.
        dim: An axis for vectors, two for matrices; None for all elements.
        keepdim: Whether the axes stay, with extent 1.
        dtype: The type to compute in.
    """
    tensor = _typed(A, "norm", dtype)
    if ord is None:
        return _power_norm(tensor, 2.0, axes_of(dim, tensor.ndim, "norm"), keepdim)
    axes = axes_of(dim, tensor.ndim, "norm")
    if len(axes) == 2 and (dim is not None or tensor.ndim == 2):
        return matrix_norm(tensor, ord, axes, keepdim)
    return vector_norm(tensor, ord, axes, keepdim)


def _typed(value: Any, name: str, dtype: Any) -> Tensor:
    tensor = floating(value, name)
    return tensor if dtype is None else cast(tensor, to_type(dtype).name)


def vector_norm(x: Any, ord: Any = 2, axis: Axis = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the norm of order ``ord`` over ``axis``, of all elements as one vector if it is None."""
    tensor = _typed(x, "vector_norm", dtype)
    return _power_norm(tensor, float(ord), axes_of(axis, tensor.ndim, "vector_norm"), keepdims)


def _power_norm(tensor: Tensor, order: float, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    if order == 2:
        return reduce("ReduceL2", tensor, axes, keepdims) if tensor.ndim else arithmetic.abs(tensor)
    size = arithmetic.abs(tensor)
    if order in (np.inf, -np.inf):
        return reduce("ReduceMax" if order > 0 else "ReduceMin", size, axes, keepdims)
    if order == 0:
        return reduce("ReduceSum", cast(arithmetic.not_equal(tensor, 0), tensor.type.dtype), axes, keepdims)
    if order == 1:
        return reduce("ReduceSum", size, axes, keepdims)
    return arithmetic.pow(reduce("ReduceSum", arithmetic.pow(size, order), axes, keepdims), 1 / order)


def matrix_norm(A: Any, ord: Any = "fro", axis: Any = (-2, -1), keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the norm of matrices: ``fro``, ``nuc``, or of order 1, -1, 2, -2, ``inf`` or ``-inf``."""
    tensor = _typed(A, "matrix_norm", dtype)
    row, column = axes_of(axis, tensor.ndim, "matrix_norm")
    if ord == "fro":
        return _power_norm(tensor, 2.0, (row, column), keepdims)
    if ord in (1, -1, np.inf, -np.inf):
        first, second = (row, column) if ord in (1, -1) else (column, row)
        sums = reduce("ReduceSum", arithmetic.abs(tensor), (first,), True)
        high = reduce("ReduceMax" if ord > 0 else "ReduceMin", sums, (second,), True)
        kept = (extent for place, extent in enumerate(tensor.shape) if place not in (row, column))
        return high if keepdims else shaping.reshaped(high, tuple(kept))
    if ord not in ("nuc", 2, -2):
        raise ArgumentValueError(f"a matrix norm of order {ord!r}", "use 'fro', 'nuc', 1, -1, 2, -2, inf or -inf")
    result: Tensor = in_floats(np.linalg.norm)(tensor, ord, (row, column), keepdims)
    return result


def euclidean_norm(x: Any, axes: Any, keep_dims: bool = False) -> Tensor:
    """Return the Euclidean norm over axes."""
    return _power_norm(need_tensor(x, "EuclideanNorm"), 2.0, axes_of(axes, x.ndim, "EuclideanNorm"), keep_dims)


def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosines of the angles of vectors along ``dim``."""
    shape = np.broadcast_shapes(x1.shape, x2.shape)
    first, second = shaping.broadcast_to(x1, shape), shaping.broadcast_to(x2, shape)
    sizes = [arithmetic.maximum(vector_norm(item, 2, dim, True), eps) for item in (first, second)]
    return total(arithmetic.mul(arithmetic.div(first, sizes[0]), arithmetic.div(second, sizes[1])), dim)


def cdist(x1: Any, x2: Any, p: float = 2.0) -> Tensor:
    """Return the distances of order ``p`` of each row of a matrix to each of another."""
    first, second = need_tensor(x1, "cdist"), need_tensor(x2, "cdist")
    difference = arithmetic.sub(shaping.expand_dims(first, -2), shaping.expand_dims(second, -3))
    return _power_norm(difference, float(p), (difference.ndim - 1,), False)


def pdist(input: Any, p: float = 2.0) -> Tensor:
    """Return the distances of order ``p`` of each row to each row after it."""
    tensor = need_tensor(input, "pdist")
    count = tensor.shape[-2]
    places = np.flatnonzero(np.triu(np.ones((count, count), bool), 1))
    table = cdist(tensor, tensor, p)
    flat = shaping.reshaped(table, (*table.shape[:-2], count * count))
    return shaping.gather(flat, Tensor.of(places), table.ndim - 2)


def renorm(input: Any, p: float, axis: int, maxnorm: float) -> Tensor:
    """Return the tensor with each slice along ``axis`` scaled down to a norm of at most ``maxnorm``."""
    tensor = need_tensor(input, "renorm")
    place = axis_in(axis, tensor.ndim, "renorm")
    sizes = _power_norm(tensor, float(p), tuple(item for item in range(tensor.ndim) if item != place), True)
    above = arithmetic.greater(sizes, maxnorm)
    scale = arithmetic.where(above, arithmetic.div(maxnorm, arithmetic.add(sizes, 1e-7)), shaping.ones_like(sizes))
    return arithmetic.mul(tensor, scale)


def clip_by_norm(x: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Any:
    """Return tensors scaled down together to a norm of at most ``max_norm``."""
    items = [x] if isinstance(x, Tensor) else list(x)
    order = float(norm_type)
    sizes = [shaping.reshaped(vector_norm(shaping.ravel(item), order), (1,)) for item in items]
    whole = vector_norm(shaping.concat(sizes), order)
    scale = arithmetic.minimum(arithmetic.div(max_norm, arithmetic.add(whole, 1e-6)), 1.0)
    scaled = [arithmetic.mul(item, scale) for item in items]
    return scaled[0] if isinstance(x, Tensor) else type(x)(scaled)


def clip_by_global_norm(x: Any, clip_norm: float = 1.0, use_norm: Any = None) -> Any:
    """Return tensors scaled down together to a Euclidean norm of at most ``clip_norm``."""
    squares = [reduce("ReduceSum", arithmetic.square(item), None, False) for item in x]
    size = arithmetic.sqrt(arithmetic.addn(squares))
    return tuple(arithmetic.div(arithmetic.mul(item, clip_norm), arithmetic.maximum(size, clip_norm)) for item in x)


def matrix_power(input: Any, n: int) -> Tensor:
    """Return the product of ``n`` times a matrix; of its inverse if ``n`` is negative."""
    tensor = need_tensor(input, "matrix_power")
    if n < 0:
        tensor, n = inverse(tensor), -n
    if n == 0:
        return shaping.broadcast_to(shaping.eye(tensor.shape[-1], dtype=tensor.dtype), tensor.shape)
    return functools.reduce(matmul, [tensor] * n)


def _turned(matrix: Array) -> Array:
    return np.swapaxes(matrix, -1, -2)


@in_floats
def slogdet(input: Any) -> Any:
    """Return the signs of the determinants of matrices, and the logarithms of their absolute values."""
    sign, log = np.linalg.slogdet(input)
    return np.asarray(sign), np.asarray(log)


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
def geqrf(input: Any) -> Any:
    """Return the reflectors of a QR decomposition below R, and their factors."""
    packed, factors = np.linalg.qr(input, "raw")
    return _turned(packed), factors


@in_floats
def svd(input: Any, full_matrices: bool = False, compute_uv: bool = True) -> Any:
    """Return the singular values of matrices and, if asked, the left and right singular vectors (as columns)."""
    if not compute_uv:
        return np.linalg.svd(input, compute_uv=False)
    left, values, right = np.linalg.svd(input, full_matrices)
    return values, left, _turned(right)


def _orthogonal(packed: Array, factors: Array, columns: int) -> Array:
    """Return the first columns of the products of the reflectors that ``geqrf`` gives."""
    rows = packed.shape[-2]
    result = np.broadcast_to(np.eye(rows), (*packed.shape[:-1], rows)).copy()
    for k in reversed(range(factors.shape[-1])):
        vector = packed[..., k].copy()
        vector[..., :k], vector[..., k] = 0, 1
        result -= factors[..., k, None, None] * vector[..., None] * (vector[..., None, :] @ result)
    return result[..., :columns]


@in_floats
def ormqr(input: Any, tau: Any, other: Any, left: bool = True, transpose: bool = False) -> Any:
    """Return ``other`` times the orthogonal matrix that the reflectors of ``geqrf`` make."""
    whole = _orthogonal(input, tau, input.shape[-2])
    whole = _turned(whole) if transpose else whole
    return whole @ other if left else other @ whole


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
    whole = np.eye(LU_data.shape[-2])
    exchanged = np.apply_along_axis(lambda pivots: whole[:, _permutation(pivots, len(whole))], -1, LU_pivots)
    return exchanged, *_triangles(LU_data)


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


_ANGLES = (np.arange(256) + 0.5) * math.pi / 256
_STEPS = np.linspace(0, 1, 1025)
_EULER_MACLAURIN = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000)


def _lgamma(value: float) -> float:
    if math.isnan(value):
        return value
    return math.inf if math.isinf(value) or (value <= 0 and value == int(value)) else math.lgamma(value)


def _each(function: Any, *arrays: Any) -> Array:
    return np.asarray(np.vectorize(function, otypes=[np.float64])(*arrays))


@in_floats
def digamma(input: Any) -> Any:
    """Return the derivative of ``lgamma`` at each element."""
    poles = (input <= 0) & (input == np.floor(input))
    small = input < 0.5
    high = np.where(small, 1 - input, input)
    result = np.zeros_like(high)
    for _ in range(10):  # the series below converges from 6 on
        low = high < 6
        result -= np.where(low, 1 / np.where(low, high, 1), 0)
        high = high + low
    inverse = 1 / (high * high)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240 - inverse / 132))))
    result += np.log(high) - 0.5 / high - series
    result = np.where(small, result - math.pi / np.tan(math.pi * input), result)
    return np.where(poles, np.nan, result)


@in_floats
def erfinv(input: Any) -> Any:
    """Return the number whose ``erf`` each element is."""
    log = np.log1p(-input * input)
    first = 2 / (math.pi * 0.147) + log / 2
    guess = np.sign(input) * np.sqrt(np.sqrt(first * first - log / 0.147) - first)
    for _ in range(4):
        guess = guess - (_each(math.erf, guess) - input) * math.sqrt(math.pi) / 2 * np.exp(guess * guess)
    guess = np.where(input == 0, input, guess)
    return np.where(np.abs(input) == 1, np.sign(input) * np.inf, guess)


def _zeta(exponent: Array, start: Array) -> Array:
    exponent, start = np.broadcast_arrays(exponent, start)
    total = sum((start + k) ** -exponent for k in range(12))
    last = start + 12
    total = total + last ** (1 - exponent) / (exponent - 1) + 0.5 * last**-exponent
    factor = exponent * last ** (-exponent - 1)
    for k, weight in enumerate(_EULER_MACLAURIN):
        total = total + weight * factor
        factor = factor * (exponent + 2 * k + 1) * (exponent + 2 * k + 2) / (last * last)
    return np.asarray(np.where(exponent > 1, total, np.where(exponent == 1, np.inf, np.nan)))


def polygamma(n: Any, input: Any) -> Any:
    """Return the ``n``-th derivative of ``digamma`` at each element."""
    order = int(n if isinstance(n, int) else n.asnumpy().item())
    return digamma(input) if order == 0 else _polygamma(input, order)


@in_floats
def _polygamma(input: Any, order: int) -> Any:
    return (-1) ** (order + 1) * math.factorial(order) * _zeta(np.asarray(order + 1.0), input)


def _incomplete(a: float, x: float) -> tuple[float, float]:
    """Return the lower and the upper part: by the series below ``a + 1``, else by the continued fraction."""
    if not (a > 0 and x >= 0):
        return math.nan, math.nan
    if x == 0:
        return 0.0, 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for k in range(1, 500):
            term *= x / (a + k)
            total += term
        return total * scale, 1 - total * scale
    b, c, d = x + 1 - a, 1e300, 1 / (x + 1 - a)
    fraction = d
    for k in range(1, 500):
        factor = -k * (k - a)
        b += 2
        d, c = 1 / (factor * d + b), b + factor / c
        fraction *= d * c
    return 1 - fraction * scale, fraction * scale


def _beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(b, a, 1 - x)
    scale = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 300):
        for factor in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                       -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):  # fmt: skip
            d, c = 1 / (1 + factor * d), 1 + factor / c
            fraction *= d * c
    return scale * fraction


def _first_kind(order: int, oscillating: bool) -> Any:
    """Return the Bessel function J (oscillating) or I scaled by ``exp(-|x|)``, as an integral over half a period."""

    def function(x: Any) -> Any:
        x = x[..., None]
        if oscillating:
            return np.cos(order * _ANGLES - x * np.sin(_ANGLES)).mean(-1)
        return (np.exp(x * np.cos(_ANGLES) - np.abs(x)) * np.cos(order * _ANGLES)).mean(-1)

    return formula(f"the Bessel function of the first kind of order {order} of each element", in_floats(function))


def _second_kind(order: int) -> Any:
    """Return the modified Bessel function K scaled by ``exp(x)``: an integral that vanishes doubly exponentially."""

    def function(x: Any) -> Any:
        positive = np.where(x > 0, x, 1.0)[..., None]
        end = np.arccosh(1 + 750 / positive)
        t = end * _STEPS
        values = np.exp(-positive * (np.cosh(t) - 1)) * np.cosh(order * t)
        result = (values.sum(-1) - (values[..., 0] + values[..., -1]) / 2) / 1024 * end[..., 0]
        return np.where(x > 0, result, np.where(x == 0, np.inf, np.nan))

    what = f"the modified Bessel function K of order {order} of each element times ``exp(x)``"
    return formula(what, in_floats(function))


@lru_cache(maxsize=1)
def _legendre() -> tuple[Array, Array]:
    """Return places from 0 to 1 and their weights in an integral; they take 0.1 s to compute."""
    nodes, weights = np.polynomial.legendre.leggauss(256)
    return (1 + nodes) / 2, weights / 2


def _neumann(order: int) -> Any:
    """Return the Bessel function Y: one integral oscillates over half a period, another vanishes exponentially."""

    def function(x: Any) -> Any:
        nodes, weights = _legendre()
        positive = np.where(x > 0, x, 1.0)[..., None]
        angles = math.pi * nodes
        oscillating = (np.sin(positive * np.sin(angles) - order * angles) * weights).sum(-1)
        end = np.arcsinh(750 / positive)
        t = end * nodes
        growing = np.exp(order * t) + (-1) ** order * np.exp(-order * t)
        vanishing = (growing * np.exp(-positive * np.sinh(t)) * weights).sum(-1) * end[..., 0] / math.pi
        return np.where(x > 0, oscillating - vanishing, np.where(x == 0, -np.inf, np.nan))

    return formula(f"the Bessel function of the second kind of order {order} of each element", in_floats(function))


def _unscaled(scaled: Any, name: str, order: int) -> Any:
    def function(x: Any) -> Any:
        if name == "K":
            return arithmetic.div(scaled(x), arithmetic.exp(x))
        return arithmetic.mul(scaled(x), arithmetic.exp(arithmetic.where(x > 0, x, arithmetic.neg(x))))

    return formula(f"the modified Bessel function {name} of order {order} of each element", function)


@on_data
def population_count(input_x: Any) -> Any:
    """Return the number of set bits of each integer, as uint8."""
    octets = np.ascontiguousarray(input_x).view(np.uint8).reshape(*input_x.shape, input_x.itemsize)
    return np.unpackbits(octets, axis=-1).sum(-1).astype(np.uint8)


addbmm = formula("``beta * input + alpha * sum(batch1 @ batch2)``",
    lambda input, batch1, batch2, *, beta=1, alpha=1:
        scaled_sum(input, total(bmm(batch1, batch2), 0), beta, alpha))  # fmt: skip
addmv = formula("``beta * input + alpha * (mat @ vec)``",
    lambda input, mat, vec, *, beta=1, alpha=1: scaled_sum(input, mv(mat, vec), beta, alpha))  # fmt: skip
addr = formula("``beta * x + alpha * outer(vec1, vec2)``",
    lambda x, vec1, vec2, *, beta=1, alpha=1: scaled_sum(x, outer(vec1, vec2), beta, alpha))  # fmt: skip
vecdot = formula("the sums of products along ``axis``", lambda x, y, *, axis=-1: total(arithmetic.mul(x, y), axis))
trace = formula("the sum of the diagonal of a matrix",
    of_tensor(lambda input: reduce("ReduceSum", diagonal(input), None, False)))  # fmt: skip
nuclear_norm = formula("the sum of the singular values of matrices",
    lambda x, dim=None, keepdim=False: matrix_norm(x, "nuc", (0, 1) if dim is None else dim, keepdim))  # fmt: skip
normalize = formula(
    "the tensor divided by its norm of order ``p`` along ``dim``",
    lambda input, p=2.0, dim=1, eps=1e-12: arithmetic.div(
        input, arithmetic.maximum(vector_norm(input, p, dim, True), eps)))  # fmt: skip
dist = formula("the norm of order ``p`` of the difference",
    lambda input, other, p=2: vector_norm(shaping.ravel(arithmetic.sub(input, other)), p))  # fmt: skip
det = formula("the determinants of matrices", in_floats(lambda input: np.linalg.det(input)))
inverse = formula("the inverses of matrices", in_floats(lambda input: np.linalg.inv(input)))
matrix_inverse = formula("the inverses of matrices, or of the transposed ones",
    in_floats(lambda x, adjoint=False: np.linalg.inv(_turned(x) if adjoint else x)))  # fmt: skip
cond = formula("the condition numbers of matrices for a norm", in_floats(lambda A, p=None: np.linalg.cond(A, p)))
matrix_solve = formula("X of ``matrix @ X = rhs``",
    in_floats(lambda matrix, rhs, adjoint=False:
        np.linalg.solve(_turned(matrix) if adjoint else matrix, rhs)))  # fmt: skip
matrix_determinant = spelled(det)
log_matrix_determinant = spelled(slogdet)
lgamma = formula("the logarithm of the absolute value of the gamma function of each element",
    in_floats(lambda input: _each(_lgamma, input)))  # fmt: skip
zeta = formula("Hurwitz's zeta function: the sum of ``(k + other) ** -input`` over all k",
    in_floats(lambda input, other: _zeta(input, np.asarray(other, np.float64))))  # fmt: skip
igamma = formula("the regularized lower incomplete gamma function of shape ``input`` at ``other``",
    in_floats(lambda input, other: _each(lambda a, x: _incomplete(a, x)[0], input, other)))  # fmt: skip
igammac = formula("the regularized upper incomplete gamma function of shape ``input`` at ``other``",
    in_floats(lambda input, other: _each(lambda a, x: _incomplete(a, x)[1], input, other)))  # fmt: skip
betainc = formula("the regularized incomplete beta function of shapes ``a`` and ``b`` at ``x``",
    in_floats(lambda a, b, x: _each(_beta, a, b, x)))  # fmt: skip
bessel_y0, bessel_y1 = _neumann(0), _neumann(1)
bessel_j0, bessel_j1 = _first_kind(0, True), _first_kind(1, True)
bessel_i0e, bessel_i1e = _first_kind(0, False), _first_kind(1, False)
bessel_k0e, bessel_k1e = _second_kind(0), _second_kind(1)
bessel_i0, bessel_i1 = _unscaled(bessel_i0e, "I", 0), _unscaled(bessel_i1e, "I", 1)
bessel_k0, bessel_k1 = _unscaled(bessel_k0e, "K", 0), _unscaled(bessel_k1e, "K", 1)
i0 = spelled(bessel_i0, input="x")
gcd = formula("the greatest common divisors of integers", on_data(lambda input, other: np.gcd(input, other)))
lcm = formula("the least common multiples of integers", on_data(lambda input, other: np.lcm(input, other)))
nextafter = formula("the next float after each element of ``input`` towards ``other``",
    on_data(lambda input, other: np.nextafter(input, other)))  # fmt: skip
cholesky_inverse = formula("the inverse of a positive definite matrix from its triangular factor",
    in_floats(lambda input_x, upper=False:
        np.linalg.inv(_turned(input_x) @ input_x if upper else input_x @ _turned(input_x))))  # fmt: skip
cholesky_solve = formula("X of ``A @ X = input``, for the positive definite A with the triangular factor ``input2``",
    in_floats(lambda input, input2, upper=False:
        np.linalg.solve(_turned(input2) @ input2 if upper else input2 @ _turned(input2), input)))  # fmt: skip
orgqr = formula("the first columns of the orthogonal matrix that the reflectors of ``geqrf`` make",
    in_floats(lambda input, input2: _orthogonal(input, input2, input.shape[-1])))  # fmt: skip
mvlgamma = formula("the logarithm of the multivariate gamma function of dimension ``p``",
    in_floats(lambda input, p:
        p * (p - 1) / 4 * math.log(math.pi) + sum(_each(_lgamma, input - j / 2) for j in range(p))))  # fmt: skip

names.export(vars(), but="betainc euclidean_norm matrix_inverse normalize nuclear_norm triangular_solve")
