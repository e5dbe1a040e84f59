"""Linear algebra: more products and norms, and decompositions, which numpy computes on data."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from opbuild.frontend.cell import location
from opbuild.mindspore.arguments import ArgumentValueError, axis_in
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.host import in_floats
from opbuild.mindspore.ops.arithmetic import (
    abs,
    add,
    addn,
    div,
    maximum,
    minimum,
    mul,
    pow,
    sqrt,
    square,
    sub,
)  # fmt: skip
from opbuild.mindspore.ops.arranging import diagonal
from opbuild.mindspore.ops.comparison import greater, not_equal, where
from opbuild.mindspore.ops.creation import eye, ones_like
from opbuild.mindspore.ops.declaration import floating, formula, need_tensor, of_tensor
from opbuild.mindspore.ops.decompositions import inverse
from opbuild.mindspore.ops.gathering import gather
from opbuild.mindspore.ops.linear import bmm, matmul, mv, outer, scaled_sum
from opbuild.mindspore.ops.reduction import Axis, axes_of, reduce
from opbuild.mindspore.ops.reduction import sum as total
from opbuild.mindspore.ops.shaping import broadcast_to, concat, expand_dims, ravel, reshaped, roll, swapaxes, transpose
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "addbmm", "addmv", "addr", "batch_dot", "bidense", "cdist", "clip_by_global_norm", "clip_by_norm",
    "cosine_similarity", "cross", "dist", "einsum", "kron", "matrix_norm", "matrix_power", "norm", "pdist",
    "renorm", "trace", "vecdot", "vector_norm",
]  # fmt: skip

addbmm = formula(
    "addbmm", "``beta * input + alpha * sum(batch1 @ batch2)``",
    lambda input, batch1, batch2, *, beta=1, alpha=1: scaled_sum(input, total(bmm(batch1, batch2), 0), beta, alpha),
)  # fmt: skip
addmv = formula("addmv", "``beta * input + alpha * (mat @ vec)``",
                lambda input, mat, vec, *, beta=1, alpha=1: scaled_sum(input, mv(mat, vec), beta, alpha))  # fmt: skip
addr = formula("addr", "``beta * x + alpha * outer(vec1, vec2)``",
               lambda x, vec1, vec2, *, beta=1, alpha=1: scaled_sum(x, outer(vec1, vec2), beta, alpha))  # fmt: skip
vecdot = formula("vecdot", "the sums of products along ``axis``", lambda x, y, *, axis=-1: total(mul(x, y), axis))
trace = formula("trace", "the sum of the diagonal of a matrix",
                of_tensor(lambda input: reduce("ReduceSum", diagonal(input), None, False)))  # fmt: skip
nuclear_norm = formula(
    "nuclear_norm", "the sum of the singular values of matrices",
    lambda x, dim=None, keepdim=False: matrix_norm(x, "nuc", (0, 1) if dim is None else dim, keepdim),
)  # fmt: skip
normalize = formula(
    "normalize", "the tensor divided by its norm of order ``p`` along ``dim``",
    lambda input, p=2.0, dim=1, eps=1e-12: div(input, maximum(vector_norm(input, p, dim, True), eps)),
)  # fmt: skip
dist = formula("dist", "the norm of order ``p`` of the difference",
               lambda input, other, p=2: vector_norm(ravel(sub(input, other)), p))  # fmt: skip


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
        reshaped(rows, (batch, rows.size // (batch * depth), depth)),
        swapaxes(reshaped(columns, (batch, columns.size // (batch * depth), depth)), 1, 2),
    )
    return reshaped(result, (*rows.shape[:-1], *columns.shape[1:-1]) if rows.ndim + columns.ndim > 4 else (batch, 1))


def _last(tensor: Tensor, axis: int) -> Tensor:
    return transpose(tensor, (*(item for item in range(tensor.ndim) if item != axis), axis))


def bidense(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Tensor:
    """Return ``input1 @ weight[k] @ input2`` for each k, plus the bias."""
    first, second = need_tensor(input1, "bidense"), need_tensor(input2, "bidense")
    rows = reshaped(first, (first.size // first.shape[-1], first.shape[-1]))
    columns = reshaped(second, (second.size // second.shape[-1], second.shape[-1]))
    result = einsum("bn,anm,bm->ba", rows, weight, columns)
    result = result if bias is None else add(result, bias)
    return reshaped(result, (*first.shape[:-1], weight.shape[0]))


def cross(input: Any, other: Any, dim: int | None = None) -> Tensor:
    """Return the vector products along an axis of extent 3: the first of them if ``dim`` is None."""
    first, second = need_tensor(input, "cross"), need_tensor(other, "cross")
    if dim is None or dim == -65530:
        dim = next((axis for axis, extent in enumerate(first.shape) if extent == 3), None)
        if dim is None:
            raise ArgumentValueError(f"cross of shape {first.shape}{location()}", "an axis must have extent 3")
    ahead = mul(roll(first, -1, dim), roll(second, -2, dim))
    return sub(ahead, mul(roll(first, -2, dim), roll(second, -1, dim)))


def kron(input: Any, other: Any) -> Tensor:
    """Return the Kronecker product."""
    first, second = need_tensor(input, "kron"), need_tensor(other, "kron")
    rank = max(first.ndim, second.ndim)
    left, right = ((1,) * (rank - item.ndim) + item.shape for item in (first, second))
    wide = mul(
        reshaped(first, tuple(part for extent in left for part in (extent, 1))),
        reshaped(second, tuple(part for extent in right for part in (1, extent))),
    )
    return reshaped(wide, tuple(a * b for a, b in zip(left, right, strict=True)))


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
        return reduce("ReduceL2", tensor, axes, keepdims) if tensor.ndim else abs(tensor)
    size = abs(tensor)
    if order in (np.inf, -np.inf):
        return reduce("ReduceMax" if order > 0 else "ReduceMin", size, axes, keepdims)
    if order == 0:
        return reduce("ReduceSum", cast(not_equal(tensor, 0), tensor.type.dtype), axes, keepdims)
    if order == 1:
        return reduce("ReduceSum", size, axes, keepdims)
    return pow(reduce("ReduceSum", pow(size, order), axes, keepdims), 1 / order)


def matrix_norm(A: Any, ord: Any = "fro", axis: Any = (-2, -1), keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the norm of matrices: ``fro``, ``nuc``, or of order 1, -1, 2, -2, ``inf`` or ``-inf``."""
    tensor = _typed(A, "matrix_norm", dtype)
    row, column = axes_of(axis, tensor.ndim, "matrix_norm")
    if ord == "fro":
        return _power_norm(tensor, 2.0, (row, column), keepdims)
    if ord in (1, -1, np.inf, -np.inf):
        first, second = (row, column) if ord in (1, -1) else (column, row)
        sums = reduce("ReduceSum", abs(tensor), (first,), True)
        high = reduce("ReduceMax" if ord > 0 else "ReduceMin", sums, (second,), True)
        return high if keepdims else reshaped(high, _without(tensor.shape, (row, column)))
    if ord not in ("nuc", 2, -2):
        raise ArgumentValueError(f"a matrix norm of order {ord!r}", "use 'fro', 'nuc', 1, -1, 2, -2, inf or -inf")
    result: Tensor = _singular_norm(tensor, ord, (row, column), keepdims)
    return result


def _without(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


@in_floats
def _singular_norm(array: Any, ord: Any, axes: Any, keepdims: bool) -> Any:
    return np.linalg.norm(array, ord, axes, keepdims)


def euclidean_norm(x: Any, axes: Any, keep_dims: bool = False) -> Tensor:
    """Return the Euclidean norm over axes."""
    return _power_norm(need_tensor(x, "EuclideanNorm"), 2.0, axes_of(axes, x.ndim, "EuclideanNorm"), keep_dims)


def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosines of the angles of vectors along ``dim``."""
    shape = np.broadcast_shapes(x1.shape, x2.shape)
    first, second = broadcast_to(x1, shape), broadcast_to(x2, shape)
    sizes = [maximum(vector_norm(item, 2, dim, True), eps) for item in (first, second)]
    return total(mul(div(first, sizes[0]), div(second, sizes[1])), dim)


def cdist(x1: Any, x2: Any, p: float = 2.0) -> Tensor:
    """Return the distances of order ``p`` of each row of a matrix to each of another."""
    first, second = need_tensor(x1, "cdist"), need_tensor(x2, "cdist")
    difference = sub(expand_dims(first, -2), expand_dims(second, -3))
    return _power_norm(difference, float(p), (difference.ndim - 1,), False)


def pdist(input: Any, p: float = 2.0) -> Tensor:
    """Return the distances of order ``p`` of each row to each row after it."""
    tensor = need_tensor(input, "pdist")
    count = tensor.shape[-2]
    places = np.flatnonzero(np.triu(np.ones((count, count), bool), 1))
    table = cdist(tensor, tensor, p)
    return gather(reshaped(table, (*table.shape[:-2], count * count)), Tensor.of(places), table.ndim - 2)


def renorm(input: Any, p: float, axis: int, maxnorm: float) -> Tensor:
    """Return the tensor with each slice along ``axis`` scaled down to a norm of at most ``maxnorm``."""
    tensor = need_tensor(input, "renorm")
    place = axis_in(axis, tensor.ndim, "renorm")
    sizes = _power_norm(tensor, float(p), tuple(item for item in range(tensor.ndim) if item != place), True)
    return mul(tensor, where(greater(sizes, maxnorm), div(maxnorm, add(sizes, 1e-7)), ones_like(sizes)))


def clip_by_norm(x: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Any:
    """Return tensors scaled down together to a norm of at most ``max_norm``."""
    items = [x] if isinstance(x, Tensor) else list(x)
    order = float(norm_type)
    sizes = [reshaped(vector_norm(ravel(item), order), (1,)) for item in items]
    whole = vector_norm(concat(sizes), order)
    scale = minimum(div(max_norm, add(whole, 1e-6)), 1.0)
    scaled = [mul(item, scale) for item in items]
    return scaled[0] if isinstance(x, Tensor) else type(x)(scaled)


def clip_by_global_norm(x: Any, clip_norm: float = 1.0, use_norm: Any = None) -> Any:
    """Return tensors scaled down together to a Euclidean norm of at most ``clip_norm``."""
    squares = [reduce("ReduceSum", square(item), None, False) for item in x]
    size = sqrt(addn(squares))
    return tuple(div(mul(item, clip_norm), maximum(size, clip_norm)) for item in x)


def matrix_power(input: Any, n: int) -> Tensor:
    """Return the product of ``n`` times a matrix; of its inverse if ``n`` is negative."""
    tensor = need_tensor(input, "matrix_power")
    if n < 0:
        tensor, n = inverse(tensor), -n
    if n == 0:
        return broadcast_to(eye(tensor.shape[-1], dtype=tensor.dtype), tensor.shape)
    return functools.reduce(matmul, [tensor] * n)
