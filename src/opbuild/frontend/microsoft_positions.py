"""Rotary and relative positions of ``com.microsoft``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.frontend.microsoft_attention import rotated
from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.types import Node


@writes("RotaryEmbedding")
def _rotary_embedding(of: Rewriting) -> Sequence[Node]:
    shape = of.shape(0, 3, 4)
    batch, length = shape[0], shape[-2]
    positions = of.input(1)
    if len(of.shape(1)) == 1:
        steps = of.constant(np.arange(length, dtype=np.int64))
        positions = of("Expand", of("Add", positions, steps), of.ints(batch, length))
    if float(of.attr("scale", 1.0)) != 1.0 or of.attr("is_packed_batching", 0):
        of.refuse("a scale or a packed batch is not served")
    part, interleaved = 2 * of.shape(2)[1], bool(of.attr("interleaved", 0))
    tables, value = (of.input(2), of.input(3)), of.input(0)
    if len(shape) == 4:
        return of.finish(rotated(of, value, shape, tables, positions, part=part, interleaved=interleaved))
    heads = int(of.attr("num_heads", 0)) or shape[-1] // part  # a head is as long as its table if nothing is said
    size = shape[-1] // heads
    value = of("Transpose", of.reshape(value, batch, length, heads, size), perm=(0, 2, 1, 3))
    split = (batch, heads, length, size)
    value = rotated(of, value, split, tables, positions, part=part, interleaved=interleaved)
    return of.finish(of.reshape(of("Transpose", value, perm=(0, 2, 1, 3)), *shape))
