"""Hashes of text, in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.graph.types import Array, Node

_WORD = 0xFFFFFFFF


@implements("MurmurHash3", domain="opbuild")
def _hashes(node: Node, inputs: Any) -> Sequence[Array]:
    """MurmurHash3 of 32 bits, of the bytes that each string has in UTF-8."""
    seed = int(node.attrs.get("seed", 0)) & _WORD
    found = np.array([murmur3(each.encode(), seed) for each in inputs[0].flat], np.uint32).reshape(inputs[0].shape)
    return (found if node.attrs.get("positive", 1) else found.view(np.int32),)


def murmur3(text: bytes, seed: int) -> int:
    """Return MurmurHash3 of 32 bits of some bytes."""
    state, whole = seed, len(text) // 4 * 4
    for begin in range(0, whole, 4):
        state ^= _mixed(int.from_bytes(text[begin : begin + 4], "little"))
        state = (_rotated(state, 13) * 5 + 0xE6546B64) & _WORD
    state ^= _mixed(int.from_bytes(text[whole:], "little")) ^ len(text)
    state = (state ^ state >> 16) * 0x85EBCA6B & _WORD
    state = (state ^ state >> 13) * 0xC2B2AE35 & _WORD
    return state ^ state >> 16


def _mixed(word: int) -> int:
    return _rotated(word * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _WORD
