"""Hashes of ``com.microsoft``, as ONNX's operators on whole numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.cut import HOST_VALUE
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
    if of.attr("reset_on_eos", 0) or of.has(6):
        of.refuse("history that ends at a token or a segment is not served")
    batch, length = of.shape(0, 2)
    most, heads, kind = int(of.attr("max_ngram_size", 2)), int(of.attr("n_head_per_ngram", 1)), of.dtype(0)
    if of.has(3):
        before = of.input(3)
    else:
        filler = of.scalar(5) if of.has(5) else of.constant(np.array(of.attr("pad_id", 0), kind))
        before = of("Expand", filler, of.ints(batch, most - 1))
    whole = of("Concat", before, of.input(0), axis=1)
    mixed, hashes = "", []
    for back in range(most):
        shifted = of.slice(whole, 1, most - 1 - back, most - 1 - back + length)
        part = of("Mul", shifted, of.slice(of.input(1), 0, back, back + 1))
        mixed = of("BitwiseXor", mixed, part) if mixed else part
        if back:
            sizes = of.slice(of.input(2), 0, (back - 1) * heads, back * heads)
            hashes.append(of("Mod", of("Unsqueeze", mixed, of.ints(2)), sizes))
    found = of("Concat", *hashes, axis=2)
    return of.finish(
        of("Add", found, of.input(4)) if of.has(4) else found, of.slice(whole, 1, length, length + most - 1)
    )
