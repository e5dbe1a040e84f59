"""The attention operators of domain ``com.microsoft``, as products and softmax, with rotary and relative positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.frontend.heads import Heads, split_heads
from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.graph_builder import Value
from opbuild.graph.types import Node


def _mask(own: Heads, index: int, lengths: bool = True, places: str = "") -> None:
    """Add the hiding of keys: an input with their number, where they begin and end, or a mask.

    ``places`` are those of the queries, if not the last ones.
    """
    of, filled = own.of, float(own.of.attr("mask_filter_value", -10000.0))
    shape, given = of.shape(index), of("Cast", of.input(index), to=7)
    batch, total = own.batch, own.total
    steps = of.steps(total)
    if lengths and shape == (batch,):
        shown = of("Less", steps, of.reshape(given, (batch, 1, 1, 1)))
    elif lengths and shape == (2 * batch,):
        ends, begins = (of.reshape(of.slice(given, 0, i * batch, (i + 1) * batch), (batch, 1, 1, 1)) for i in (0, 1))
        shown = of("And", of("Less", steps, ends), of("GreaterOrEqual", steps, begins))
    elif len(shape) in (2, 3, 4) and shape[-1] >= total:
        if len(shape) == 4:  # a square for all calls, of which this one has some rows
            rows = of("Gather", given, places, axis=2) if places else of.slice(given, 2, total - own.length, total)
            given = of.slice(rows, 3, 0, total)
        count = {2: 1, 3: shape[1], 4: own.length}[len(shape)]
        shown = of("Greater", of.reshape(given, (batch, 1, count, total)), of.ints(0))
    else:
        of.refuse(f"a mask of shape {list(shape)} is not served")
    own.added.append(of("Where", shown, of.floats(0.0), of.floats(filled)))


def _causal(own: Heads) -> None:
    """Hide keys that come after each query; the last one sees all, as in ONNX Runtime."""
    of, past, length, total = own.of, own.past, own.length, own.total
    counts = of.steps(length, past + 1)
    if total != past + length:
        counts = of("Concat", of.steps(length - 1, past + 1), of.ints(total), axis=0)
    own.shown = of("Less", of.steps(total), of.reshape(counts, (length, 1)))


def angles_at(of: Rewriting, tables: Sequence[Value], places: str) -> list[Value]:
    """Write the cosines and sines ``(batch, 1, length, part / 2)`` of places, which must be in the tables."""
    places = of.in_range(places, tables[0].shape[0])
    return [of("Unsqueeze", of("Gather", table, places, axis=0), of.ints(1)) for table in tables]


def turned(
    of: Rewriting, value: str, shape: Sequence[int], angles: Sequence[str], *, part: int, interleaved: bool
) -> Value:
    """Write the rotation of pairs of elements by angles, as ONNX's RotaryEmbedding defines it.

    Args:
        of: Where it is written.
        value: ``(batch, heads, length, size)``.
        shape: Its shape.
        angles: Cosines and sines, ``(batch, 1, length, part / 2)``.
        part: How many of the elements of a head are rotated, the first.
        interleaved: Whether neighbours are a pair, not elements half a part away.
    """
    half, whole, (cosine, sine) = part // 2, tuple(shape[:-1]), angles
    rest = of.slice(value, 3, part, shape[-1]) if part < shape[-1] else ""
    moved = of.slice(value, 3, 0, part) if rest else value
    if interleaved:
        pairs = of.reshape(moved, (*whole, half, 2))
        first, second = (of("Squeeze", of.slice(pairs, 4, i, i + 1), of.ints(4)) for i in (0, 1))
    else:
        first, second = of.parts(moved, 3, half, half)
    one = of("Sub", of("Mul", first, cosine), of("Mul", second, sine))
    other = of("Add", of("Mul", first, sine), of("Mul", second, cosine))
    parts = [one, other]
    if interleaved:
        joined = of("Concat", *(of("Unsqueeze", each, of.ints(4)) for each in (one, other)), axis=4)
        parts = [of.reshape(joined, (*whole, part))]
    return of("Concat", *parts, *filter(None, (rest,)), axis=3) if len(parts) > 1 or rest else parts[0]


@writes("Attention")
def _attention(of: Rewriting) -> Sequence[Node]:
    """Attention: the projection of queries, keys and values by one matrix, then attention."""
    projected = of.plus(of("MatMul", of.input(0), of.input(1)), 2)
    return _attend_to_itself(of, projected, 3, 4, 5, before=6)


@writes("QAttention")
def _quantized_attention(of: Rewriting) -> Sequence[Node]:
    """QAttention: the projection by a matrix of bytes, then attention in floats, as in ONNX Runtime."""
    zeros = (of.input(each) if of.has(each) else "" for each in (6, 7))
    total = of("Cast", of("MatMulInteger", of.input(0), of.input(1), *zeros), to=1)
    scales = (of.reshape(of.input(each), (-1,)) for each in (3, 4))
    projected = of("Add", of("Mul", total, of("Mul", *scales)), of.input(2))
    return _attend_to_itself(of, projected, 5, 8, None)


def _attend_to_itself(
    of: Rewriting, projected: str, mask: int, past: int, added: int | None, before: int | None = None
) -> Sequence[Node]:
    """Write attention of queries, keys and values side by side; inputs are given by their numbers."""
    batch, length, _ = of.shape(0, 3)
    heads, columns = int(of.attr("num_heads", 0)), of.shape(1, 2)[1]
    sizes = tuple(map(int, of.attr("qkv_hidden_sizes", ()))) or (columns // 3,) * 3
    of.refuse_if(of.attr("do_rotary", 0) or not heads, "rotary positions are not served")
    parts = zip(of.parts(projected, 2, *sizes), sizes, strict=True)
    query, key, value = (split_heads(of, part, batch, length, heads, size // heads) for part, size in parts)
    own = Heads(of, query, key, value, batch, heads, length, length, sizes[0] // heads, sizes[2] // heads)
    if before is not None and of.attr("past_present_share_buffer", 0):
        return _attend_to_itself_in_buffer(own, mask, past, added, before)
    if of.has(past):
        own.append_to(*_apart(of, of.input(past)), of.shape(past, 5)[3])
    present = ""
    if len(of.node.outputs) > 1 and of.node.outputs[1]:
        present = of("Concat", *(of("Unsqueeze", each, of.ints(0)) for each in (own.key, own.value)), axis=0)
    if of.has(mask):
        _mask(own, mask)
    if of.attr("unidirectional", 0):
        _causal(own)
    if added is not None and of.has(added):
        own.added.append(of.input(added))
    return of.finish(own.attend(float(of.attr("scale", 0.0))), present)


def _apart(of: Rewriting, both: str) -> tuple[Value, Value]:
    """Write keys and values that lie one behind the other."""
    key, value = (of("Squeeze", of.slice(both, 0, i, i + 1), of.ints(0)) for i in (0, 1))
    return key, value


def _attend_to_itself_in_buffer(own: Heads, mask: int, past: int, added: int | None, before: int) -> Sequence[Node]:
    """Write the same with a buffer of earlier keys and values, which takes the new ones.

    A mask, or what is added to the scores, is as long as the keys that there are.
    """
    of = own.of
    of.refuse_if(not of.has(past) or not of.has(before), "a shared buffer needs past and past_sequence_length")
    of.refuse_if(own.size != own.value_size, "a shared buffer for values of another size is not served")
    begin = of.cast(of.reshape(of.input(before), (1, 1)), "int64")
    steps = of("Add", begin, of.steps(own.length))
    new = of("Concat", *(of("Unsqueeze", each, of.ints(0)) for each in (own.key, own.value)), axis=0)
    index = of.reshape(steps, (1, 1, 1, own.length, 1))
    index = of("Expand", index, of.ints(2, own.batch, own.count, own.length, own.size))
    present = of("ScatterElements", of.input(past), index, new, axis=3)
    own.key, own.value = _apart(of, present)
    own.total = of.shape(past, 5)[3]
    for each in (mask, added):
        if each is not None and of.has(each) and (each == added or len(of.shape(each)) in (2, 3)):
            own.total = of.shape(each)[-1]
    if own.total is not of.shape(past)[3]:
        own.key, own.value = (of.slice(each, 2, 0, own.total) for each in (own.key, own.value))
    _hide_behind(own, begin, steps)
    if of.has(mask):
        _mask(own, mask, places=of.reshape(steps, (own.length,)))
    if added is not None and of.has(added):
        own.added.append(of.input(added))
    return of.finish(own.attend(float(of.attr("scale", 0.0))), present)


@writes("MultiHeadAttention")
def _multi_head_attention(of: Rewriting) -> Sequence[Node]:
    """MultiHeadAttention: queries, keys and values given, apart or packed."""
    heads = int(of.attr("num_heads", 0))
    of.refuse_if(of.has(9) or not heads, "beams, and models without a number of heads, are not served")
    own = _packed_heads(of) if len(of.shape(0, 3, 5)) == 5 else _separate_heads(of, heads)
    if of.has(6) and of.has(8):
        return _attend_in_buffer(of, own)
    if of.has(6):
        own.append_to(of.input(6), of.input(7), of.shape(6, 4)[2])
    if of.has(4):
        _mask(own, 4)
    if of.attr("unidirectional", 0):
        _causal(own)
    if of.has(5):
        own.added.append(of.input(5))
    if not any(of.node.outputs[3:]):
        return of.finish(own.attend(float(of.attr("scale", 0.0))), own.key, own.value)
    least = np.finfo(np.float16 if of.dtype() == "float16" else np.float32).min
    value = own.attend(float(of.attr("scale", 0.0)), hidden=float(least))
    return of.finish(value, own.key, own.value, own.stages[2])


def _attend_in_buffer(of: Rewriting, own: Heads) -> Sequence[Node]:
    """Write the attention to a buffer of earlier keys, which takes the new ones, with room for more behind them."""
    of.refuse_if(of.has(4) or any(of.node.outputs[3:]), "a mask with a shared buffer, or its scores, are not served")
    before = of.cast(of.reshape(of.input(8), (1, 1)), "int64")
    steps = of("Add", before, of.steps(own.length))
    present = own.key, own.value = _written(of, 6, (own.key, own.value), steps, own.length)
    own.total = of.shape(6, 4)[2]
    _hide_behind(own, before, steps)
    if of.has(5):
        own.added.append(of("Pad", of.input(5), of.ints(0, 0, 0, 0, 0, 0, 0, own.total - of.shape(5, 4)[3])))
    return of.finish(own.attend(float(of.attr("scale", 0.0))), *present)


def _hide_behind(own: Heads, before: str, steps: str) -> None:
    """Hide what lies behind the keys in a buffer, and keys that come after each query if it is causal.

    ``before``, ``(1, 1)``: how many earlier keys there are; ``steps``, ``(1, length)``: the places of the new ones.
    """
    of = own.of
    own.there = of.reshape(of("Add", before, of.ints(own.length)), (1, 1, 1, 1))
    counts = of("Add", of.reshape(steps, (own.length, 1)), of.ints(1)) if of.attr("unidirectional", 0) else own.there
    own.shown = of("Less", of.steps(own.total), counts)


def _packed_heads(of: Rewriting) -> Heads:
    """Return queries, keys and values that lie in one tensor ``(batch, length, heads, 3, size)``."""
    of.refuse_if(of.has(3), "a bias of packed queries, keys and values is not served")
    batch, length, heads, _, size = of.shape(0)
    query, key, value = _unpacked_heads(of, 0, 3)
    return Heads(of, query, key, value, batch, heads, length, length, size, size)


def _unpacked_heads(of: Rewriting, index: int, count: int) -> list[Value]:
    """Write the parts of an input ``(batch, length, heads, count, size)``, each ``(batch, heads, length, size)``."""
    parts = (of("Squeeze", of.slice(of.input(index), 3, i, i + 1), of.ints(3)) for i in range(count))
    return [of("Transpose", part, perm=(0, 2, 1, 3)) for part in parts]


def _separate_heads(of: Rewriting, heads: int) -> Heads:
    batch, length, hidden = of.shape(0, 3)
    size = hidden // heads
    biases: Sequence[str] = ("", "", "")
    if of.has(3):
        biases = of.parts(of.input(3), 0, hidden, hidden, of.shape(3, 1)[0] - 2 * hidden)
    query = of("Add", of.input(0), biases[0]) if biases[0] else of.input(0)
    query = split_heads(of, query, batch, length, heads, size)
    shape = of.shape(1, 3, 4, 5)
    if len(shape) == 4:  # keys and values of another network's part, which lie as they are wanted
        total, value_size = shape[2], of.shape(2, 4)[3]
        return Heads(of, query, of.input(1), of.input(2), batch, heads, length, total, size, value_size)
    total = shape[1]
    if len(shape) == 5:
        of.refuse_if(of.has(3), "a bias of packed keys and values is not served")
        key, value = _unpacked_heads(of, 1, 2)
        return Heads(of, query, key, value, batch, heads, length, total, size, size)
    value_size = of.shape(2, 3)[2] // heads
    key, value = (of("Add", of.input(i), biases[i]) if biases[i] else of.input(i) for i in (1, 2))
    key = split_heads(of, key, batch, total, heads, size)
    value = split_heads(of, value, batch, total, heads, value_size)
    return Heads(of, query, key, value, batch, heads, length, total, size, value_size)


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
        query, key, value = of.parts(of.input(0), 2, heads * size, groups * size, groups * size)
    before = of("Sub", of("Cast", of.input(5), to=7), of.ints(length - 1))  # keys of earlier calls, of each batch
    before = of("Max", of.reshape(before, (batch, 1)), of.ints(0))
    steps = of("Add", before, of.steps(length))
    query = split_heads(of, query, batch, length, heads, size)
    key, value = (split_heads(of, each, batch, length, groups, size) for each in (key, value))
    if of.has(14):
        query, key = (_normalized(of, each, i) for i, each in enumerate((query, key)))
    if of.attr("do_rotary", 0):
        places = of.input(9) if of.has(9) else steps
        part, interleaved = 2 * of.shape(7)[1], bool(of.attr("rotary_interleaved", 0))
        query, key = (
            turned(
                of,
                each,
                (batch, count, length, size),
                angles_at(of, (of.input(7), of.input(8)), places),
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
    there = of("Add", of.reshape(of("Cast", of.input(5), to=7), (batch, 1, 1, 1)), of.ints(1))
    _hide_unseen(own, steps, there)
    if not past or total != past:  # there is no room for more
        own.there = own.since = ""
    if of.has(10):
        own.added.append(own.of_heads(of.input(10), of.shape(10, 4)))
    # A query that sees no key, which its window may leave it, has the mean of all values.
    least = float(np.finfo(np.float32 if of.dtype() == "float32" else np.float16).min)
    has_window = of.attr("local_window_size", -1) > 0 and length != 1
    filled: float = least if has_window else -np.inf
    return of.finish(own.attend(float(of.attr("scale", 0.0)), float(of.attr("softcap", 0.0)), filled), *present)


def _normalized(of: Rewriting, value: str, side: int) -> Value:
    """Write the RMS normalization of each head of queries (0) or of keys (1)."""
    epsilon = of.attr(f"{'qk'[side]}_norm_epsilon", of.attr("qk_norm_epsilon", 1e-6))
    return of("RMSNormalization", value, of.input(14 + side), axis=-1, epsilon=float(epsilon))


def _with_cache(of: Rewriting, key: str, value: str, past: int, before: str) -> tuple[int, Value, Value]:
    """Return the number of keys with those of earlier calls, and the keys and values.

    The cache is as long as what it holds, or it has room for more; the latter where every new key fits into it. Each
    batch may hold another number of keys.
    """
    batch, length, _ = of.shape(0)
    size, groups = of.shape(3)[3], of.shape(3)[1]
    total, room = of.at_least(6, 3, 2), past + length
    if total == past:
        places = of("Min", of("Add", before, of.steps(length)), of.ints(past - 1))
        return total, *_written(of, 3, (key, value), places, length)
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


def _written(of: Rewriting, cache: int, new: Sequence[str], places: str, length: int) -> tuple[Value, Value]:
    """Write new keys and values into a cache with room for them, two inputs ``(batch, heads, room, size)``.

    ``places``, ``(batch, length)`` or one row for all: where each goes; ``new``: each ``(batch, heads, length, size)``.
    """
    index, places = "", of.reshape(places, (-1, 1, length, 1))
    found = list[Value]()
    for number, each in enumerate(new, cache):
        batch, heads, _, size = of.shape(number, 4)
        if not found or size != of.shape(cache, 4)[3]:
            index = of("Expand", places, of.ints(batch, heads, length, size))
        found.append(of("ScatterElements", of.input(number), index, each, axis=2))
    return found[0], found[1]


def _hide_unseen(own: Heads, steps: str, there: str) -> None:
    """Hide keys that a query does not see: that there are not yet, that come after it, or before its window.

    ``steps`` are the places of queries, ``(batch, length)``; ``there`` how many keys each batch has, ``(batch, 1, 1,
    1)``.
    """
    of, window = own.of, int(own.of.attr("local_window_size", -1))
    there = there if own.length == 1 else own.of_queries(there, rows=1)
    keys, count, first = of.steps(own.total), there, ""
    if own.length == 1:  # the one query is the last key
        own.since = first = of("Sub", there, of.ints(window)) if window > 0 else ""
    else:
        if of.attr("causal", 1):
            count = of("Min", own.of_queries(of("Add", steps, of.ints(1))), there)
        if window > 0:
            first = own.of_queries(of("Sub", steps, of.ints(window - 1)))
    own.there, own.shown = there, of("Less", keys, count)
    if first:
        own.shown = of("And", own.shown, of("GreaterOrEqual", keys, first))


@writes("DecoderMaskedMultiHeadAttention")
def decoder_masked_attention(of: Rewriting) -> Sequence[Node]:
    """DecoderMaskedMultiHeadAttention: of itself with a buffer of earlier keys, or of another network's keys."""
    heads = int(of.attr("num_heads", 0))
    batch, length, hidden = of.shape(0, 3)
    if length != 1 or not heads:
        of.refuse(f"it attends for one token at a time, with a number of heads, not for {length} with {heads}")
    of.refuse_if(of.attr("output_qk", 0), "the scores are not given")
    if not of.has(5):
        return of.finish(_borrowed_keys(of, heads).attend(float(of.attr("scale", 0.0))))
    if not of.attr("past_present_share_buffer", 0):
        of.refuse("earlier keys without past_present_share_buffer are not served")
    parts = list(map(of.input, range(3))) if of.has(1) else of.parts(of.input(0), 2, *(hidden // 3,) * 3)
    query, key, value = (_one_row(of, part, index, heads) for index, part in enumerate(parts))
    size = (hidden if of.has(1) else hidden // 3) // heads
    room = of.shape(5, 4)[2]
    place = of.cast(of.reshape(of.input(7), (1, 1)), "int64")
    present = _written(of, 5, (key, value), place, 1)
    seen: Sequence[Value] = present
    if of.has(9):
        rows = _beam_rows(of, of("Less", of.reshape(of.steps(room), (room, 1)), place))
        seen = [of("GatherElements", each, rows, axis=0) for each in present]
    own = Heads(of, query, seen[0], seen[1], batch, heads, 1, room, size, size)
    _hide_keys(of, own)
    own.there = of("Add", of.reshape(place, (1, 1, 1, 1)), of.ints(1))
    own.shown = of("Less", of.steps(own.total), own.there)
    return of.finish(own.attend(float(of.attr("scale", 0.0))), *present)


def _one_row(of: Rewriting, value: str, index: int, heads: int) -> Value:
    """Write one token, ``(batch, 1, heads * size)``, as ``(batch, heads, 1, size)``; ``index``: its bias."""
    batch, _, hidden = of.shape(0)
    hidden = hidden if of.has(1) else hidden // 3
    if of.has(10):
        value = of("Add", value, of.slice(of.input(10), 0, index * hidden, (index + 1) * hidden))
    return of.reshape(value, (batch, heads, 1, hidden // heads))


def _borrowed_keys(of: Rewriting, heads: int) -> Heads:
    """Return keys and values of another network's part, which lie as they are wanted."""
    batch, _, hidden = of.shape(0)
    total, size = of.shape(1, 4)[2], hidden // heads
    own = Heads(of, _one_row(of, of.input(0), 0, heads), of.input(1), of.input(2), batch, heads, 1, total, size, size)
    if of.has(3):
        _mask(own, 3)
    return own


def _hide_keys(of: Rewriting, own: Heads) -> None:
    """Take the mask and the addend of the scores, which are as long as the keys that there are."""
    for index in (3, 4):
        if of.has(index):
            own.total = of.shape(index, 2 if index == 3 else 4)[-1]
    own.key, own.value = (of.slice(each, 2, 0, own.total) for each in (own.key, own.value))
    if of.has(3):
        _mask(own, 3, lengths=False)
    if of.has(4):
        own.added.append(of.input(4))


def _beam_rows(of: Rewriting, earlier: str) -> Value:
    """Write in which row of the buffer each earlier key of a beam is, for every element; others are in its own."""
    batches, beams, room = of.shape(9, 3)
    own = of.reshape(of.steps(batches * beams), (batches * beams, 1, 1, 1))
    first = of.reshape(of("Mul", of.steps(batches), of.ints(beams)), (batches, 1, 1))
    rows = of("Add", of.cast(of.input(9), "int64"), first)
    rows = of("Where", earlier, of.reshape(rows, (batches * beams, 1, room, 1)), own)
    return of("Expand", rows, of.ints(*of.shape(5)))


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
    angles = angles_at(of, (of.input(2), of.input(3)), positions)
    return of.finish(_turned_heads(of, angles, 2 * of.shape(2)[1]))


def _turned_heads(of: Rewriting, angles: Sequence[str], part: int) -> Value:
    """Write the rotation of an input, whose heads may lie side by side."""
    shape, value, interleaved = of.shape(0, 3, 4), of.input(0), bool(of.attr("interleaved", 0))
    if len(shape) == 4:
        return turned(of, value, shape, angles, part=part, interleaved=interleaved)
    batch, length, hidden = shape
    heads = int(of.attr("num_heads", 0)) or hidden // part  # a head is as long as its table if nothing is said
    size = hidden // heads
    value = split_heads(of, value, batch, length, heads, size)
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
