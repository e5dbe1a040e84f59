"""Rotary and relative positions of ``com.microsoft``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.frontend.microsoft_attention import turned
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
    tables, part = (of.input(2), of.input(3)), 2 * of.shape(2)[1]
    positions = of.in_range(positions, tables[0].shape[0])
    cosine, sine = (of("Unsqueeze", of("Gather", table, positions, axis=0), of.ints(1)) for table in tables)
    return of.finish(_turned_heads(of, (cosine, sine), part))


def _turned_heads(of: Rewriting, angles: Sequence[str], part: int) -> str:
    """Write the rotation of an input, whose heads may lie side by side."""
    shape, value, interleaved = of.shape(0, 3, 4), of.input(0), bool(of.attr("interleaved", 0))
    if len(shape) == 4:
        return turned(of, value, shape, angles, part=part, interleaved=interleaved)
    batch, length, hidden = shape
    heads = int(of.attr("num_heads", 0)) or hidden // part  # a head is as long as its table if nothing is said
    size = hidden // heads
    value = of("Transpose", of.reshape(value, (batch, length, heads, size)), perm=(0, 2, 1, 3))
    value = turned(of, value, (batch, heads, length, size), angles, part=part, interleaved=interleaved)
    return of.reshape(of("Transpose", value, perm=(0, 2, 1, 3)), shape)


@writes("MRotaryEmbedding")
def _multiple_rotary_embedding(of: Rewriting) -> Sequence[Node]:
    """RotaryEmbedding by three positions, of each of which some of the angles are."""
    if float(of.attr("scale", 1.0)) != 1.0 or of.attr("is_packed_batching", 0):
        of.refuse("a scale or a packed batch is not served")
    half = of.shape(2, 2)[1]
    sections = [int(each) for each in of.attr("mrope_section", ())]
    chosen = np.zeros(half, np.int64)
    if of.attr("mrope_layout", 0):
        for number in (1, 2):
            chosen[number : 3 * sections[number] : 3] = number
    else:
        chosen = np.repeat(np.arange(3), sections)
    first, second = (of.constant(chosen == number) for number in (0, 1))

    def angles(table: str) -> str:
        found = of("Gather", table, of.input(1), axis=0)
        streams = of.several("Split", 3, found, axis=0, num_outputs=3)
        mixed = of("Where", first, streams[0], of("Where", second, streams[1], streams[2]))
        return of("Unsqueeze", of("Squeeze", mixed, of.ints(0)), of.ints(1))

    return of.finish(_turned_heads(of, tuple(map(angles, (of.input(2), of.input(3)))), 2 * half))


@writes("RelativePositionBias")
def _relative_position_bias(of: Rewriting) -> Sequence[Node]:
    """A number for each head by how far a key is from a query; the table lies head by head."""
    buckets, heads = of.shape(0, 2)
    (queries,), (keys,) = of.ints_in(1), of.ints_in(2)
    both, far = bool(of.attr("is_bidirectional", 0)), int(of.attr("max_distance", 128))
    away = np.arange(keys)[None] - np.arange(queries)[:, None]
    count = buckets // 2 if both else buckets
    offset = np.where(away > 0, count, 0) if both else 0
    away = np.abs(away) if both else np.maximum(-away, 0)
    near = count // 2
    spread = max(np.log(far / near), 1e-9)  # all that is far has one bucket if the distances are none
    wide = np.minimum(np.log(np.maximum(away, 1) / near) / spread * (count - near), count).astype(np.int64)
    places = np.where(away < near, away, np.minimum(near + wide, count - 1)) + offset
    found = of("Gather", of.reshape(of.input(0), (heads, buckets)), of.constant(places.astype(np.int64)), axis=1)
    return of.finish(of("Unsqueeze", found, of.ints(0)))
