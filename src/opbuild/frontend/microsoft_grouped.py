"""GroupQueryAttention of ``com.microsoft``, which decoders of language models have, as products and softmax."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.frontend.microsoft_attention import Heads, rotated, split_heads
from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.types import Node


@writes("GroupQueryAttention")
def _grouped_query_attention(of: Rewriting) -> Sequence[Node]:
    """GroupQueryAttention: fewer heads of keys and values than of queries, with those of earlier calls."""
    heads, groups = int(of.attr("num_heads", 0)), int(of.attr("kv_num_heads", 0))
    unserved = ("sliding_window_cache", "kv_cache_bit_width", "qk_output")
    if any(of.attr(name, 0) for name in unserved) or any(of.has(index) for index in (12, 13, 16)):
        of.refuse("quantised or window-sized caches, padded queries and the output of scores are not served")
    batch, length, hidden = of.shape(0, 3)
    if of.has(1):
        size = hidden // heads
        query, key, value = of.input(0), of.input(1), of.input(2)
    else:
        size = hidden // (heads + 2 * groups)
        ends = (0, heads * size, (heads + groups) * size, hidden)
        query, key, value = (of.slice(of.input(0), 2, ends[i], ends[i + 1]) for i in range(3))
    before = of("Sub", of("Cast", of.input(5), to=7), of.ints(length - 1))  # keys of earlier calls, of each batch
    before = of("Max", of.reshape(before, (batch, 1)), of.ints(0))
    steps = of("Add", before, of.steps(length))
    query = split_heads(of, query, batch, length, heads, size)
    key, value = (split_heads(of, each, batch, length, groups, size) for each in (key, value))
    if of.has(14):
        query, key = (_normalized(of, each, side) for each, side in ((query, "q"), (key, "k")))
    if of.attr("do_rotary", 0):
        places = of.input(9) if of.has(9) else steps
        part, interleaved = 2 * of.shape(7)[1], bool(of.attr("rotary_interleaved", 0))
        query, key = (
            rotated(
                of,
                each,
                (batch, count, length, size),
                (of.input(7), of.input(8)),
                places,
                part=part,
                interleaved=interleaved,
            )
            for each, count in ((query, heads), (key, groups))
        )
    past = of.shape(3, 4)[2] if of.has(3) else 0
    total = length
    if past:
        total, key, value = _with_cache(of, key, value, past, before)
    present = (key, value)
    own = Heads(of, query, key, value, batch, heads, length, total, size, size)
    own.groups = groups if heads != groups else 0
    if of.has(11):
        own.sink = of.input(11)
    elif of.attr("smooth_softmax", 0):
        own.sink = of.floats(np.zeros(heads))
    own.shown = _shown(of, steps, total, (1, 1) if own.groups and length != 1 else (1,))
    if of.has(10):
        own.added.append(_of_groups(of, 10, groups) if own.groups else of.input(10))
    # A query that sees no key, which its window may leave it, has the mean of all values.
    least = float(np.finfo(np.float32 if of.dtype() == "float32" else np.float16).min)
    has_window = of.attr("local_window_size", -1) > 0
    filled: float = least if has_window else -np.inf
    return of.finish(own.attend(float(of.attr("scale", 0.0)), float(of.attr("softcap", 0.0)), filled), *present)


def _normalized(of: Rewriting, value: str, side: str) -> str:
    """Write the RMS normalization of each head of queries or of keys."""
    epsilon = of.attr(f"{side}_norm_epsilon", of.attr("qk_norm_epsilon", 1e-6))
    weight = of.input(14 if side == "q" else 15)
    return of("RMSNormalization", value, weight, axis=-1, epsilon=float(epsilon))


def _with_cache(of: Rewriting, key: str, value: str, past: int, before: str) -> tuple[int, str, str]:
    """Return how many keys there are with those of earlier calls, and the keys and values.

    The cache is as long as what it holds, or it has room for more; the latter where every new key fits into it. Each
    batch may hold another number of keys.
    """
    batch, length, _ = of.shape(0)
    size, groups = of.shape(3)[3], of.shape(3)[1]
    total, room = of.at_least(6, 3, 2), past + length
    if total == past:
        index = of("Min", of("Add", before, of.steps(length)), of.ints(past - 1))
        index = of("Expand", of.reshape(index, (batch, 1, length, 1)), of.ints(batch, groups, length, size))
        key, value = (
            of("ScatterElements", of.input(3 + i), index, each, axis=2) for i, each in enumerate((key, value))
        )
        return total, key, value
    joined = [of("Concat", of.input(3 + i), each, axis=2) for i, each in enumerate((key, value))]
    steps = of.steps(total)
    moved = of("Add", of("Sub", steps, before), of.ints(past))
    moved = of("Min", moved, of.ints(room - 1))
    index = of("Where", of("Less", steps, before), steps, moved)
    if batch == 1:
        found = [of("Gather", each, of.reshape(index, (total,)), axis=2) for each in joined]
    else:
        index = of("Expand", of.reshape(index, (batch, 1, total)), of.ints(batch, groups, total))
        index = of.reshape(index, (batch * groups, total, 1))
        rows = [of.reshape(each, (batch * groups, room, size)) for each in joined]
        found = [of("GatherND", each, index, batch_dims=1) for each in rows]
    key, value = (of.reshape(each, (batch, groups, total, size)) for each in found)
    return total, key, value


def _of_groups(of: Rewriting, index: int, groups: int) -> str:
    """Write an input ``(batch, heads, length, total)`` so that heads which share keys are an axis; 1 head is all."""
    batch, heads, length, total = of.shape(index, 4)
    split = (1, 1) if heads == 1 else (groups, heads // groups)
    return of.reshape(of.input(index), (batch, *split, *(() if length == 1 else (length,)), total))


def _shown(of: Rewriting, steps: str, total: int, heads: Sequence[int]) -> str:
    """Write which keys a query sees: none that there are not yet, none after it, and none before its window.

    Args:
        of: Where it is written.
        steps: The place of each query, ``(batch, length)``.
        total: The number of keys, room for more included.
        heads: The axes of heads, each of extent 1.
    """
    batch, length, _ = of.shape(0)
    last, keys = of.reshape(of("Cast", of.input(5), to=7), (batch, 1)), of.steps(total)
    window = int(of.attr("local_window_size", -1))
    if of.attr("causal", 1):
        last = of("Min", steps, last)
    count = of.reshape(of("Add", last, of.ints(1)), (batch, *heads, -1, 1))
    shown = of("Less", keys, count)
    if window > 0:
        own = of.reshape(steps, (batch, *heads, length, 1))
        shown = of("And", shown, of("Greater", of("Add", keys, of.ints(window)), own))
    return shown
