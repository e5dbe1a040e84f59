"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.frontend.cell import location
from opbuild.mindspore import promotion
from opbuild.mindspore.arguments import TensorShapeError
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.ops.arithmetic import add, mul
from opbuild.mindspore.ops.declaration import formula, need_tensor, of_tensors, spelled
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "addmm", "baddbmm", "bias_add", "bmm", "dense", "dot", "ger", "inner", "matmul", "mm", "mv", "outer", "tensor_dot",
]  # fmt: skip

bmm = formula("bmm", "the products of two stacks of matrices",
              lambda input_x, mat2: product(input_x, mat2, False, False, "bmm", None))  # fmt: skip
mm = formula("mm", "the product of two matrices", lambda input, mat2: product(input, mat2, False, False, "mm", 2))
outer = formula(
    "outer", "the products of each element of a vector with each of another",
    of_tensors(lambda input, vec2: mul(emit("Reshape", input, np.array([-1, 1], np.int64)), vec2)),
)  # fmt: skip
addmm = formula(
    "addmm", "``beta * input + alpha * (mat1 @ mat2)``",
    lambda input, mat1, mat2, *, beta=1, alpha=1: scaled_sum(input, mm(mat1, mat2), beta, alpha),
)  # fmt: skip
baddbmm = formula(
    "baddbmm", "``beta * input + alpha * (batch1 @ batch2)``",
    lambda input, batch1, batch2, beta=1, alpha=1: scaled_sum(input, bmm(batch1, batch2), beta, alpha),
)  # fmt: skip


def matmul(input: Any, other: Any) -> Tensor:
    """Return the matrix product, with numpy's rules for vectors and stacks of matrices."""
    first, second = need_tensor(input, "matmul"), need_tensor(other, "matmul")
    common = promotion.promote(first.type.dtype, second.type.dtype)
    return emit("MatMul", cast(first, common), cast(second, common))


def product(first: Any, second: Any, transpose_a: bool, transpose_b: bool, name: str, rank: int | None) -> Tensor:
    """Return the product of matrices, each transposed first if asked; of ``rank`` 2, or of stacks if None."""
    first, second = need_tensor(first, name), need_tensor(second, name)
    for tensor in (first, second):
        if tensor.ndim < 2 or (rank is not None and tensor.ndim != rank):
            raise TensorShapeError(
                f"{name} was given a tensor of shape {tensor.shape}{location()}",
                f"it needs {'at least 2' if rank is None else rank} dimensions",
            )
    if rank == 2 and (transpose_a or transpose_b) and first.is_floating_point():
        return emit("Gemm", first, second, transA=int(transpose_a), transB=int(transpose_b))
    return matmul(_swapped(first) if transpose_a else first, _swapped(second) if transpose_b else second)


def _swapped(tensor: Tensor) -> Tensor:
    perm = (*range(tensor.ndim - 2), tensor.ndim - 1, tensor.ndim - 2)
    return emit("Transpose", tensor, perm=perm)


mv = spelled(matmul, "mv", mat="input", vec="other")


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
        return mul(first, second)
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


ger = outer


def scaled_sum(tensor: Any, result: Tensor, beta: float, alpha: float) -> Tensor:
    """Return ``beta * tensor + alpha * result``."""
    result = result if alpha == 1 else mul(result, alpha)
    return add(tensor if beta == 1 else mul(tensor, beta), result)


def dense(input: Any, weight: Any, bias: Any = None) -> Tensor:
    """Return ``input @ weight.T + bias``, the weight of shape (out, in)."""
    tensor, matrix = need_tensor(input, "dense"), need_tensor(weight, "dense")
    result = product(_rows(tensor), matrix, False, True, "dense", 2)
    result = result if bias is None else add(result, bias)
    return (
        emit("Reshape", result, np.array((*tensor.shape[:-1], matrix.shape[0]), np.int64))
        if tensor.ndim != 2
        else result
    )


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
            f"bias_add of shapes {tensor.shape} and {numbers.shape}{location()}",
            "the bias has one number for each channel",
        )
    if tensor.ndim > 2:
        numbers = emit("Reshape", numbers, np.array([-1] + [1] * (tensor.ndim - 2), np.int64))
    return add(tensor, numbers)
