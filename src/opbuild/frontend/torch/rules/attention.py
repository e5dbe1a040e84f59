"""Attention as torch computes it on CPUs: products and softmax, which a pass joins again."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.writing import StepBuilder, Value
from opbuild.graph.extents import is_open


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
    """Return what hides the keys that come after each query."""
    if is_open((rows, columns)):
        rows_at, columns_at = (
            of("Range", of.constant(0, "int64"), of("Squeeze", of.ints(each), of.ints(0)), of.constant(1, "int64"))
            for each in (rows, columns)
        )
        shown = of("GreaterOrEqual", of.reshape(rows_at, (rows, 1)), columns_at)
        return of("Where", shown, of.constant(0, dtype), of.constant(-np.inf, dtype))
    return of.constant(np.triu(np.full((rows, columns), -np.inf), 1), dtype)
