"""Small cells over shapes and matrices, and functions of mathematics as cells."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, allowed, axis_in, positive
from opbuild.mindspore.dtype import float32, to_type
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.initializer import Uniform, initializer
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import cell, layer
from opbuild.mindspore.ops.arithmetic import add, div, maximum, mul, sqrt, square, sub, where
from opbuild.mindspore.ops.creation import arange
from opbuild.mindspore.ops.gathering import one_hot
from opbuild.mindspore.ops.linear import matmul
from opbuild.mindspore.ops.matrices import det, inverse
from opbuild.mindspore.ops.reduction import axes_of, logsumexp, mean, reduce, sum
from opbuild.mindspore.ops.shaping import cut, reshape, reshaped, roll, swapaxes, tril, triu
from opbuild.mindspore.ops.special import digamma, igamma, lgamma
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor


class BiDense(Cell):
    """``input1 @ weight @ input2 + bias`` for each row and each output channel.

    Args:
        in1_channels: Extent of the first input's last axis.
        in2_channels: Extent of the second input's last axis.
        out_channels: Extent of the output's last axis.
        weight_init: Initial weight of shape (out_channels, in1_channels, in2_channels).
        bias_init: Initial bias.
        has_bias: Whether there is a bias.
        dtype: Element type of the parameters.
    """

    def __init__(self, in1_channels: int, in2_channels: int, out_channels: int, weight_init: Any = None,
                 bias_init: Any = None, has_bias: bool = True, dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        self.in1_channels = positive(in1_channels, "in1_channels of BiDense")
        self.in2_channels = positive(in2_channels, "in2_channels of BiDense")
        self.out_channels = positive(out_channels, "out_channels of BiDense")
        start = Uniform(1 / math.sqrt(in1_channels))
        shape = (out_channels, in1_channels, in2_channels)
        self.weight = Parameter(initializer(start if weight_init is None else weight_init, shape, dtype), "weight")
        self.bias: Parameter | None = None
        if has_bias:
            bias_init = start if bias_init is None else bias_init
            self.bias = Parameter(initializer(bias_init, (out_channels,), dtype), "bias")

    def construct(self, input1: Tensor, input2: Tensor) -> Tensor:
        """Return a tensor of shape (..., out_channels)."""
        rows = input1.size // self.in1_channels
        first = reshaped(input1, (1, rows, self.in1_channels))
        second = reshaped(input2, (1, rows, self.in2_channels))
        result = swapaxes(sum(mul(matmul(first, self.weight), second), 2), 0, 1)
        result = result if self.bias is None else add(result, self.bias)
        return reshaped(result, (*input1.shape[:-1], self.out_channels))


@cell()
def ClipByNorm(x: Tensor, clip_norm: Any, *, axis: Any = None) -> Tensor:
    """A tensor scaled down so that its Euclidean norm over ``axis`` is ``clip_norm`` at most."""
    norm = sqrt(sum(square(x), axis, True))
    return div(mul(x, clip_norm), maximum(norm, clip_norm))


@cell()
def OneHot(indices: Tensor, *, axis: int = -1, depth: int = 1, on_value: float = 1.0, off_value: float = 0.0,
           dtype: Any = float32) -> Tensor:  # fmt: skip
    """``off_value``, and ``on_value`` at each index."""
    return cast(one_hot(indices, depth, float(on_value), float(off_value), axis), to_type(dtype).name)


@cell()
def MatrixDiag(input_x: Tensor) -> Tensor:
    """Matrices with vectors on their diagonals."""
    columns = reshaped(input_x, (*input_x.shape, 1))
    return mul(columns, Tensor.of(np.eye(input_x.shape[-1], dtype=input_x.type.dtype)))


@cell()
def MatrixDiagPart(input_x: Tensor) -> Tensor:
    """The diagonals of matrices."""
    rows, columns = input_x.shape[-2:]
    found = sum(mul(input_x, Tensor.of(np.eye(rows, columns, dtype=input_x.type.dtype))), -1)
    least = min(rows, columns)
    return found if least == rows else cut(found, [0], [least], [-1], [1])


@cell()
def MatrixSetDiag(input_x: Tensor, diagonal: Tensor) -> Tensor:
    """Matrices with their diagonals replaced."""
    rows, columns = input_x.shape[-2:]
    front, least = diagonal.shape[:-1], diagonal.shape[-1]
    spread = reshaped(diagonal, (*front, least, 1) if rows <= columns else (*front, 1, least))
    return where(Tensor.of(np.eye(rows, columns, dtype=bool)), spread, input_x)


@cell()
def MatMul(x1: Tensor, x2: Tensor, *, transpose_x1: bool = False, transpose_x2: bool = False) -> Tensor:
    """The product of matrices, each transposed first if asked."""
    x1 = swapaxes(x1, -1, -2) if transpose_x1 and x1.ndim > 1 else x1
    x2 = swapaxes(x2, -1, -2) if transpose_x2 and x2.ndim > 1 else x2
    return matmul(x1, x2)


Norm = layer("Norm", lambda x, *, axis=(), keep_dims=False: sqrt(sum(square(x), axis, keep_dims)),
             "The Euclidean norm over ``axis``.")  # fmt: skip
Roll = layer("Roll", lambda input_x, *, shift, axis: roll(input_x, shift, axis),
             "Elements moved around by ``shift`` along ``axis``.")  # fmt: skip
Tril = layer("Tril", lambda x, k=0: tril(x, k), "The matrix with 0 above a diagonal.")
Triu = layer("Triu", lambda x, k=0: triu(x, k), "The matrix with 0 below a diagonal.")
ReduceLogSumExp = layer("ReduceLogSumExp", lambda x, *, axis, keep_dims=False: logsumexp(x, axis, keep_dims),
                        "The logarithm of the sum of exponentials over ``axis``.")  # fmt: skip


def _a_tuple(value: Any, what: str) -> None:
    if not isinstance(value, (tuple, list)):
        raise ArgumentTypeError(f"{what} is {value!r}", "give a tuple")


@cell(checks={"unflattened_size": _a_tuple})
def Unflatten(input_x: Tensor, *, axis: int, unflattened_size: Any) -> Tensor:
    """An axis as several, whose extents are ``unflattened_size``."""
    place = axis_in(axis, input_x.ndim, "Unflatten")
    return reshape(input_x, (*input_x.shape[:place], *unflattened_size, *input_x.shape[place + 1 :]))


@cell()
def Moments(x: Tensor, *, axis: Any = None, keep_dims: bool | None = None) -> tuple[Tensor, Tensor]:
    """The mean and the variance over ``axis``."""
    axes = axes_of(() if axis is None else axis, x.ndim, "Moments")
    wide = cast(x, "float32")
    center = mean(wide, axes, True)
    spread = mean(square(sub(wide, center)), axes, bool(keep_dims))
    center = center if keep_dims else reduce("ReduceMean", center, axes, False)
    return cast(center, x.type.dtype), cast(spread, x.type.dtype)


@cell(checks={"delta": allowed(lambda delta: delta != 0, "give another number")})
def Range(*, start: Any, limit: Any = None, delta: Any = 1) -> Tensor:
    """The numbers from ``start`` to below ``limit``, ``delta`` apart."""
    numbers = arange(*((0, start, delta) if limit is None else (start, limit, delta)))
    return numbers if numbers.is_floating_point() else cast(numbers, "int32")


L1Regularizer = layer(
    "L1Regularizer", lambda weights, *, scale: mul(sum(emit("Abs", weights)), scale),
    "``scale`` times the sum of the absolute values.",
    checks={"scale": allowed(lambda scale: 0 < scale < math.inf, "give a number above 0")},
)  # fmt: skip
LBeta = layer("LBeta", lambda x, y: sub(add(lgamma(x), lgamma(y)), lgamma(add(x, y))),
              "The logarithm of the beta function.")  # fmt: skip
LGamma = layer("LGamma", lgamma, "The logarithm of the absolute value of the gamma function.", "x")
DiGamma = layer("DiGamma", digamma, "The derivative of the logarithm of the gamma function.", "x")
IGamma = layer("IGamma", igamma, "The lower regularized incomplete gamma function.", "a x")
MatDet = layer("MatDet", det, "The determinant of symmetric, positive definite matrices.", "x")
MatInverse = layer("MatInverse", inverse, "The inverse of symmetric, positive definite matrices.", "x")

__all__ = names.public(vars(), Cell)
