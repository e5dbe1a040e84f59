"""Products of matrices, and attention as torch computes it on CPUs: products and softmax, which a pass joins again.

Torch writes a linear layer of three dimensions as a product of two between two views; the views are taken back here, so
that the product is that of the module, as other front ends have it.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import numpy as np

from opbuild.frontend.torch.registry import RULES, rule
from opbuild.frontend.torch.writing import StepBuilder, Value, category
from opbuild.graph.extents import is_open


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


def _joined(of: StepBuilder, result: Value, bias: Value, beta: Any, alpha: Any) -> Value:
    if alpha != 1:
        result = of("Mul", result, of.constant(alpha, of.dtype))
    if beta == 0:
        return result
    return of("Add", result, bias if beta == 1 else of("Mul", bias, of.constant(beta, of.dtype)))


@rule("_scaled_dot_product_flash_attention_for_cpu.default")
def attention(
    of: StepBuilder,
    query: Value,
    key: Value,
    value: Value,
    dropout: float = 0.0,
    is_causal: bool = False,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, None]:
    """Softmax of scaled and masked scores, times the values; without their logarithms.

    Where heads of queries share keys, they are rows of one product: keys are not repeated. Queries with scores of -inf
    alone get 0, whether a mask hides all keys or the scores overflowed.
    """
    if dropout:
        of.refuse("dropout")
    batch, heads, rows, size = query.shape
    shared, columns = key.shape[1], key.shape[2]
    grouped = heads != shared
    if grouped:
        query = of.reshape(query, (batch, shared, heads // shared * rows, size))
    scores = of("MatMul", query, of.transpose(key, (0, 1, 3, 2)))
    if grouped:
        scores = of.reshape(scores, (batch, heads, rows, columns))
    factor = scale if scale is not None else 1 / sqrt(size)
    scores = of("Mul", scores, of.constant(factor, query.dtype))
    if is_causal:
        scores = of("Add", scores, causal_mask(of, rows, columns, query.dtype))
    if attn_mask is not None:
        if attn_mask.dtype == "bool":
            hidden = of.constant(-np.inf, query.dtype)
            attn_mask = of("Where", attn_mask, of.constant(0, query.dtype), hidden)
        scores = of("Add", scores, of.cast(attn_mask, query.dtype))
    weights = of("Softmax", scores, axis=-1, zeros="hidden")
    if not grouped:
        return of("MatMul", weights, value), None
    result = of("MatMul", of.reshape(weights, (batch, shared, heads // shared * rows, columns)), value)
    return of.reshape(result, (batch, heads, rows, value.shape[3])), None


def causal_mask(of: StepBuilder, rows: Any, columns: Any, dtype: str) -> Value:
    """Return the mask that hides the keys that come after each query."""
    if is_open((rows, columns)):
        rows_at, columns_at = (
            of("Range", of.constant(0, "int64"), of("Squeeze", of.ints(each), of.ints(0)), of.constant(1, "int64"))
            for each in (rows, columns)
        )
        shown = of("GreaterOrEqual", of.reshape(rows_at, (rows, 1)), columns_at)
        return of("Where", shown, of.constant(0, dtype), of.constant(-np.inf, dtype))
    return of.constant(np.triu(np.full((rows, columns), -np.inf), 1), dtype)


RULES.register_all(
    {
        "mm.default": lambda of, x, other: linear(of, x, other, None),
        "addmm.default": lambda of, bias, x, other, beta=1, alpha=1: linear(of, x, other, bias, alpha, beta),
        "baddbmm.default": lambda of, bias, x, other, beta=1, alpha=1: _joined(
            of, bmm(of, x, other), bias, beta, alpha
        ),
        "addmv.default": lambda of, bias, x, other, beta=1, alpha=1: _joined(
            of, matmul(of, x, other), bias, beta, alpha
        ),
        "addbmm.default": lambda of, bias, x, other, beta=1, alpha=1: _joined(
            of, of.sum(bmm(of, x, other), [0]), bias, beta, alpha
        ),
    },
    domain="aten",
)
