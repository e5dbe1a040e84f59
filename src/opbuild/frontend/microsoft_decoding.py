"""com.microsoft's attention of one new token, whose keys lie in a buffer with room for those to come."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.frontend.microsoft_attention import Heads
from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.types import Node

INT64 = 7


@writes("DecoderMaskedMultiHeadAttention")
def decoder_masked_attention(of: Rewriting) -> Sequence[Node]:
    """DecoderMaskedMultiHeadAttention: of itself with a buffer of earlier keys, or of another network's keys."""
    heads = int(of.attr("num_heads", 0))
    batch, length, hidden = of.shape(0, 3)
    if length != 1 or not heads:
        of.refuse(f"it attends for one token at a time, with a number of heads, not for {length} with {heads}")
    if of.attr("output_qk", 0):
        of.refuse("the scores are not given")
    if not of.has(5):
        return of.finish(_other(of, heads).attend(float(of.attr("scale", 0.0))))
    if not of.attr("past_present_share_buffer", 0):
        of.refuse("earlier keys without past_present_share_buffer are not served")
    parts = [of.input(index) for index in range(3)] if of.has(1) else _packed(of, hidden // 3)
    query, key, value = (_row(of, part, index, heads) for index, part in enumerate(parts))
    size = (hidden if of.has(1) else hidden // 3) // heads
    room = of.shape(5, 4)[2]
    place = of("Cast", of.reshape(of.input(7), (1, 1, 1, 1)), to=INT64)
    steps = of.reshape(of.steps(room), (1, 1, room, 1))
    is_new, earlier = of("Equal", steps, place), of("Less", steps, place)
    present = [of("Where", is_new, new, of.input(5 + index)) for index, new in enumerate((key, value))]
    seen = present
    if of.has(9):
        rows = _rows(of, earlier)
        found = (of("GatherElements", of.input(5 + index), rows, axis=0) for index in (0, 1))
        seen = [of("Where", is_new, new, each) for new, each in zip((key, value), found, strict=True)]
    own = Heads(of, query, seen[0], seen[1], batch, heads, 1, room, size, size)
    _hide(of, own)
    own.shown = of("LessOrEqual", of.steps(own.total), of.reshape(place, (1, 1, 1, 1)))
    return of.finish(own.attend(float(of.attr("scale", 0.0))), *present)


def _packed(of: Rewriting, size: int) -> list[str]:
    return [of.slice(of.input(0), 2, index * size, (index + 1) * size) for index in range(3)]


def _row(of: Rewriting, value: str, index: int, heads: int) -> str:
    """Write what one token is, ``(batch, 1, heads * size)``, as ``(batch, heads, 1, size)``; ``index``: its bias."""
    batch, _, hidden = of.shape(0)
    hidden = hidden if of.has(1) else hidden // 3
    if of.has(10):
        value = of("Add", value, of.slice(of.input(10), 0, index * hidden, (index + 1) * hidden))
    return of.reshape(value, (batch, heads, 1, hidden // heads))


def _other(of: Rewriting, heads: int) -> Heads:
    """Return keys and values of another network's part, which lie as they are wanted."""
    batch, _, hidden = of.shape(0)
    total, size = of.shape(1, 4)[2], hidden // heads
    own = Heads(of, _row(of, of.input(0), 0, heads), of.input(1), of.input(2), batch, heads, 1, total, size, size)
    if of.has(3):
        own.mask(3)
    return own


def _hide(of: Rewriting, own: Heads) -> None:
    """Take the mask and what is added to the scores, which are as long as the keys that there are."""
    for index in (3, 4):
        if of.has(index):
            own.total = of.shape(index, 2 if index == 3 else 4)[-1]
    own.key, own.value = (of.slice(each, 2, 0, own.total) for each in (own.key, own.value))
    if of.has(3):
        own.mask(3, lengths=False)
    if of.has(4):
        own.added.append(of.input(4))


def _rows(of: Rewriting, earlier: str) -> str:
    """Write in which row of the buffer each earlier key of a beam is, for every element of it."""
    batches, beams, room = of.shape(9, 3)
    first = of.reshape(of("Mul", of.steps(batches), of.ints(beams)), (batches, 1, 1))
    rows = of("Add", of("Cast", of.input(9), to=INT64), first)
    rows = of("Where", earlier, of.reshape(rows, (batches * beams, 1, room, 1)), of.ints(0))
    return of("Expand", rows, of.ints(*of.shape(5)))
