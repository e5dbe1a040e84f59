"""Hashes of ``com.microsoft``, as ONNX's operators on whole numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.breaks import HOST_VALUE
from opbuild.graph.types import Node


@writes("MurmurHash3")
def _hash(of: Rewriting) -> Sequence[Node]:
    """MurmurHash3 of 32 bits, of the bytes of each number; the host computes it of text."""
    kind = of.dtype(0)
    if kind == HOST_VALUE.dtype:
        of.write("MurmurHash3", of.node.inputs, of.node.outputs, of.node.attrs, "opbuild")
        return of.nodes
    words = {4: 1, 8: 2}.get(np.dtype(kind).itemsize)
    if words is None:
        of.refuse(f"hashes of {kind} are not served")
    seed = np.uint32(int(of.attr("seed", 0)) & 0xFFFFFFFF)
    bits = of.bits(of.input(0), kind, "uint64" if words == 2 else "uint32")
    state = of.constant(np.asarray(seed, np.uint32))
    for number in range(words):
        word = bits
        if words == 2:
            word = of("BitShift", bits, of.constant(np.array(32, np.uint64)), direction="RIGHT") if number else bits
            word = of.cast(of("BitwiseAnd", word, of.constant(np.array(0xFFFFFFFF, np.uint64))), "uint32")
        state = of("BitwiseXor", state, _mixed(of, word))
        state = of("Add", of("Mul", _rotated(of, state, 13), _word(of, 5)), _word(of, 0xE6546B64))
    state = of("BitwiseXor", state, _word(of, 4 * words))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 0)):
        state = of("BitwiseXor", state, _shifted(of, state, shift, "RIGHT"))
        state = of("Mul", state, _word(of, factor)) if factor else state
    return of.finish(state if of.attr("positive", 1) else of.bits(state, "uint32", "int32"))


def _mixed(of: Rewriting, word: str) -> str:
    return of("Mul", _rotated(of, of("Mul", word, _word(of, 0xCC9E2D51)), 15), _word(of, 0x1B873593))


def _rotated(of: Rewriting, value: str, bits: int) -> str:
    return of("BitwiseOr", _shifted(of, value, bits, "LEFT"), _shifted(of, value, 32 - bits, "RIGHT"))


def _shifted(of: Rewriting, value: str, bits: int, direction: str) -> str:
    return of("BitShift", value, _word(of, bits), direction=direction)


def _word(of: Rewriting, value: int) -> str:
    return of.constant(np.array(value, np.uint32))


@writes("NGramHashMapping")
def _hash_runs(of: Rewriting) -> Sequence[Node]:
    """Hashes of each run of two and more tokens that ends at a token, some of each length."""
    batch, length = of.shape(0, 2)
    most = int(of.attr("max_ngram_size", 2))
    filler = before_all(of, 5)
    before = of.input(3) if of.has(3) else of("Expand", filler, of.ints(batch, most - 1))
    whole = of("Concat", before, of.input(0), axis=1)

    def shifted(value: str, back: int) -> str:
        return of.slice(value, 1, most - 1 - back, most - 1 - back + length)

    segments: tuple[str, ...] = ()
    if of.has(6):
        first = of.slice(of.input(6), 1, 0, 1)  # what came before is of the first one's segment
        joined = of("Concat", of("Expand", first, of.ints(batch, most - 1)), of.input(6), axis=1)
        segments = tuple(shifted(joined, back) for back in range(most))
    runs = tuple(shifted(whole, back) for back in range(most))
    found = hashes(of, until_reset(of, runs, segments, filler, 5), 4)
    return of.finish(found, of.slice(whole, 1, length, length + most - 1))


def before_all(of: Rewriting, end: int) -> str:
    """Return the filler before the first token: the input that is the token at an end, else a number."""
    return of.scalar(end) if of.has(end) else of.constant(np.array(of.attr("pad_id", 0), of.dtype(0)))


def until_reset(of: Rewriting, runs: Sequence[str], segments: Sequence[str], filler: str, end: int) -> Sequence[str]:
    """Return tokens of runs, each so many places before the last, but the filler from where another text ends.

    Args:
        of: Where it is written.
        runs: The tokens, the last one of each run first.
        segments: Their segments, in which texts lie apart; none if there are none.
        filler: What stands where there is no token.
        end: The place of the input that has the token at which a text ends.
    """
    has_end = bool(of.has(end) and of.attr("reset_on_eos", 0))
    if not has_end and not segments:
        return runs
    found, is_over = [runs[0]], ""
    for back in range(1, len(runs)):
        ends = [of("Equal", runs[back], of.scalar(end))] if has_end else []
        if segments:
            ends.append(of("Not", of("Equal", segments[back], segments[back - 1])))
        for each in ends:
            is_over = of("Or", is_over, each) if is_over else each
        found.append(of("Where", is_over, filler, runs[back]))
    return found


def hashes(of: Rewriting, runs: Sequence[str], offsets: int) -> str:
    """Return the hashes of runs, a column for each length and head; ``offsets`` is the place of what is added."""
    heads, found = int(of.attr("n_head_per_ngram", 1)), list[str]()
    mixed = ""
    for back, run in enumerate(runs):
        part = of("Mul", run, of.slice(of.input(1), 0, back, back + 1))
        mixed = of("BitwiseXor", mixed, part) if mixed else part
        if back:
            sizes = of.slice(of.input(2), 0, (back - 1) * heads, back * heads)
            found.append(of("Mod", of("Unsqueeze", mixed, of.ints(-1)), sizes))
    value = of("Concat", *found, axis=-1)
    return of("Add", value, of.input(offsets)) if of.has(offsets) else value
