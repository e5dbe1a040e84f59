"""com.microsoft's Tokenizer: strings to lists of tokens, by patterns of RE2 of which the longest match counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from opbuild.backend.host.matching import RegularExpression
from opbuild.backend.host.movement import implements
from opbuild.backend.host.strings import text_array
from opbuild.graph.types import Array, Node

START, END = "\x02", "\x03"


@implements("Tokenizer", domain="opbuild")
def _tokenize(node: Node, inputs: Any) -> Sequence[Array]:
    """Split each string; shorter lists are filled up, with marks at their ends if they are asked for."""
    x = inputs[0]
    if x.ndim not in (1, 2):
        raise ValueError(f"its input has the shape {list(x.shape)}, not [C] or [N, C]")
    rows = [*map(_splitter(node), x.flat)]
    width = max(map(len, rows), default=0)
    shape = x.shape if x.size else x.shape[:-1]
    if width and node.attrs.get("mark", 0):
        rows, width = [[START, *row, END] for row in rows], width + 2
    pad = node.text("pad_value", "")
    return (text_array((each for row in rows for each in (*row, *[pad] * (width - len(row)))), (*shape, width)),)


def _splitter(node: Node) -> Callable[[str], list[str]]:
    """Return the function that makes tokens of a string."""
    least, separators = int(node.attrs.get("mincharnum", 1)), [*map(_text, node.attrs.get("separators", ()))]
    pattern = node.text("tokenexp", "")
    if least < 1:
        raise ValueError(f"mincharnum is {least}, not 1 or more")
    if separators == [""] or (not separators and pattern == "."):
        if least > 1:
            raise ValueError(f"mincharnum is {least}, and each character is a token")
        return list
    if not separators and not pattern:
        raise ValueError("it has neither separators nor tokenexp")
    compiled = [RegularExpression(each).search for each in separators or [pattern]]
    if separators:
        return lambda text: _separated(text, compiled, least)
    return lambda text: [*_matched(text, compiled[0], least)]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


Find = Callable[[str, int], "tuple[int, int] | None"]
"""Returns where the first match of a string from a place on begins and ends, the longest of those that begin there."""


def _matched(text: str, find: Find, least: int) -> Iterator[str]:
    """Yield matches; behind one that is too short it goes on with its second character."""
    at = 0
    while found := find(text, at) if at <= len(text) else None:
        first, end = found
        if end - first >= least:
            yield text[first:end]
        at = end if end - first >= least else first + 1


def _separated(text: str, finds: Sequence[Find], least: int) -> list[str]:
    """Return the texts between separators, which are taken one after the other."""
    tokens = [text]
    for find in finds:
        tokens = [part for each in tokens for part in _parts(each, find) if len(part) >= least]
    return tokens


def _parts(text: str, find: Find) -> Iterator[str]:
    """Yield the parts around separators; an empty one takes the character behind it away."""
    at = 0
    while found := find(text, at) if at <= len(text) else None:
        first, end = found
        yield text[at:first]
        at = end if end > first else first + 1
    yield text[at:]
