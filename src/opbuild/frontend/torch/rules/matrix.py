"""Products of matrices.

Torch writes a linear layer of three dimensions as a product of two between two views; the views are taken back here, so
that the product is that of the module, as other front ends have it.
"""

from __future__ import annotations

from math import prod
from typing import Any

from opbuild.frontend.torch.promotion import category
from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.writing import StepBuilder, Value


def product(of: StepBuilder, x: Value, other: Value) -> Value:
    """Write ``x @ other`` of two matrices, in the shape that ``x`` had before it was viewed as one."""
    if category(x.dtype) < 2:
        of.refuse("products of integers")
    whole = of.reshaped_from(x)
    for count in range(2, len(whole.shape)):
        if prod(whole.shape[:count]) == x.shape[0]:  # heads that were joined stay so
            return of("MatMul", of.reshape(x, (*whole.shape[:count], x.shape[1])), other)
    return of("MatMul", x, other)


def linear(of: StepBuilder, x: Value, weight: Value, bias: Any, alpha: Any = 1, beta: Any = 1) -> Value:
    """Write ``beta * bias + alpha * x @ weight`` as a matrix."""
    rows, columns = x.shape[0], weight.shape[1]
    result = product(of, x, weight)
    if alpha != 1:
        result = of("Mul", result, of.constant(alpha, of.dtype))
    if bias is not None and beta != 0:
        if beta != 1:
            bias = of("Mul", bias, of.constant(beta, of.dtype))
        if len(bias.shape) > 1 and len(result.shape) > 2:
            result = of.reshape(result, (rows, columns))
        result = of("Add", result, bias)
    return of.reshape(result, (rows, columns))


@rule("mm.default")
def mm(of: StepBuilder, x: Value, other: Value) -> Value:
    """``x @ other``."""
    return linear(of, x, other, None)


@rule("addmm.default")
def addmm(of: StepBuilder, bias: Value, x: Value, other: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    """``beta * bias + alpha * x @ other``."""
    return linear(of, x, other, bias, alpha, beta)


@rule("bmm.default")
def bmm(of: StepBuilder, x: Value, other: Value) -> Value:
    """A batch of products; batches that were viewed as one are taken apart again."""
    if category(x.dtype) < 2:
        of.refuse("products of integers")
    shape = (x.shape[0], x.shape[1], other.shape[2])
    first, second = of.reshaped_from(x), of.reshaped_from(other)
    if (
        len(first.shape) == len(second.shape) > 3
        and first.shape[:-2] == second.shape[:-2]
        and first.shape[-2:] == x.shape[-2:]
        and second.shape[-2:] == other.shape[-2:]
    ):
        x, other = first, second
    return of.reshape(of("MatMul", x, other), shape)


@rule("mv.default", "dot.default", "matmul.default")
def matmul(of: StepBuilder, x: Value, other: Value) -> Value:
    """``x @ other``."""
    if category(x.dtype) < 2:
        of.refuse("products of integers")
    return of("MatMul", x, other)


@rule("baddbmm.default")
def baddbmm(of: StepBuilder, bias: Value, x: Value, other: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    """``beta * bias + alpha * x @ other`` of batches."""
    return _joined(of, bmm(of, x, other), bias, beta, alpha)


@rule("addmv.default")
def addmv(of: StepBuilder, bias: Value, x: Value, other: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    """``beta * bias + alpha * x @ other`` of a vector."""
    return _joined(of, matmul(of, x, other), bias, beta, alpha)


@rule("addbmm.default")
def addbmm(of: StepBuilder, bias: Value, x: Value, other: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    """``beta * bias`` and ``alpha`` times the sum of a batch of products."""
    return _joined(of, of("ReduceSum", bmm(of, x, other), of.ints(0), keepdims=0), bias, beta, alpha)


def _joined(of: StepBuilder, result: Value, bias: Value, beta: Any, alpha: Any) -> Value:
    if alpha != 1:
        result = of("Mul", result, of.constant(alpha, of.dtype))
    if beta == 0:
        return result
    return of("Add", result, bias if beta == 1 else of("Mul", bias, of.constant(beta, of.dtype)))
