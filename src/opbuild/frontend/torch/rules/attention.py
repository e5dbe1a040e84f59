"""Attention as torch computes it on CPUs: products and softmax, which a pass joins again."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.writing import Value, Writing
from opbuild.graph.extents import is_open


@rule("_scaled_dot_product_flash_attention_for_cpu.default")
def attention(
    of: Writing,
    query: Value,
    key: Value,
    value: Value,
    dropout: float = 0.0,
    is_causal: bool = False,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, None]:
    """Softmax of scaled and masked scores, times the values; without their logarithms."""
    if dropout:
        of.refuse("dropout")
    scores = of("MatMul", query, of.transpose(key, (0, 1, 3, 2)))
    factor = scale if scale is not None else 1 / sqrt(query.shape[-1])
    scores = of("Mul", scores, of.constant(factor, query.dtype))
    if is_causal:
        scores = of("Add", scores, causal_mask(of, query.shape[2], key.shape[2], query.dtype))
    if attn_mask is not None:
        if attn_mask.dtype == "bool":
            hidden = of.constant(-np.inf, query.dtype)
            attn_mask = of("Where", attn_mask, of.constant(0, query.dtype), hidden)
        scores = of("Add", scores, of.cast(attn_mask, query.dtype))
    return of("MatMul", of("Softmax", scores, axis=-1), value), None


def causal_mask(of: Writing, rows: Any, columns: Any, dtype: str) -> Value:
    """Return what hides the keys that come after each query."""
    if is_open((rows, columns)):
        rows_at, columns_at = (
            of("Range", of.constant(0, "int64"), of("Squeeze", of.ints(each), of.ints(0)), of.constant(1, "int64"))
            for each in (rows, columns)
        )
        shown = of("GreaterOrEqual", of.reshape(rows_at, (rows, 1)), columns_at)
        return of("Where", shown, of.constant(0, dtype), of.constant(-np.inf, dtype))
    return of.constant(np.triu(np.full((rows, columns), -np.inf), 1), dtype)
