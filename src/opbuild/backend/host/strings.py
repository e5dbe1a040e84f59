"""Operators on text: tensors of it are arrays of Python's strings (dtype ``object``).

The patterns of its tokenizer are RE2's; of several matches the longest counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import TEXT, implements, implements_each
from opbuild.backend.host.patterns import RegularExpression
from opbuild.graph.shape_rules import ONNX_DTYPES
from opbuild.graph.types import Array, Node


def text_array(values: Iterable[str], shape: Sequence[int]) -> Array:
    """Return a tensor of text; ``values`` in row-major order."""
    found = np.empty(int(np.prod(shape, dtype=np.int64)), object)
    found[:] = list(values)
    return found.reshape(tuple(shape))


@implements("StringConcat")
def _concat(node: Node, inputs: Any) -> Sequence[Array]:
    x, y = np.broadcast_arrays(*inputs)
    return (text_array((a + b for a, b in zip(x.flat, y.flat, strict=True)), x.shape),)


@implements("StringSplit")
def _split(node: Node, inputs: Any) -> Sequence[Array]:
    """Split each string; shorter lists are filled up with empty strings."""
    x = inputs[0]
    delimiter, most = node.text("delimiter", "") or None, int(node.attrs.get("maxsplit", -1))
    parts = [text.split(delimiter, most) for text in x.flat]
    return _filled(parts, x.shape), np.array([*map(len, parts)], np.int64).reshape(x.shape)


def _filled(rows: Sequence[Sequence[str]], shape: Sequence[int], pad: str = "") -> Array:
    """Return lists of text as the last dimension of a tensor, shorter ones filled up."""
    width = max(map(len, rows), default=0)
    return text_array((each for row in rows for each in (*row, *[pad] * (width - len(row)))), (*shape, width))


@implements("StringNormalizer")
def _normalize(node: Node, inputs: Any) -> Sequence[Array]:
    """Leave stop words out and change cases. Nothing left is one empty string."""
    x = inputs[0]
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ValueError("its input has to have the shape [C] or [1, C]")
    same: Callable[[str], str] = str if node.attrs.get("is_case_sensitive", 0) else str.lower
    stops = {same(as_text(word)) for word in node.attrs.get("stopwords", ())}
    change: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    changed = change[node.text("case_change_action", "NONE")]
    kept = [changed(word) for word in x.flat if same(word) not in stops] or [""]
    return (text_array(kept, (*x.shape[:-1], len(kept))),)


def as_text(value: Any) -> str:
    """Return text of an attribute, which may be bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


@implements("RegexFullMatch")
def _full_match(node: Node, inputs: Any) -> Sequence[Array]:
    x, pattern = inputs[0], RegularExpression(node.text("pattern", ""))
    return (np.array([pattern.fullmatch(text) for text in x.flat], np.bool_).reshape(x.shape),)


implements_each(
    {
        "Equal": lambda node, inputs: np.asarray(inputs[0] == inputs[1], np.bool_),
        "Where": lambda node, inputs: np.where(*inputs),
    },
    on_text=True,
)


# -- casts -------------------------------------------------------------------------------------------------------------


@implements("Cast", on_text=True)
def _cast(node: Node, inputs: Any) -> Sequence[Array]:
    x, number = inputs[0], int(node.attrs["to"])
    return (_as_text(x) if number == TEXT else from_text(x, np.dtype(ONNX_DTYPES[number])),)


@implements("CastLike", on_text=True)
def _cast_like(node: Node, inputs: Any) -> Sequence[Array]:
    x, dtype = inputs[0], inputs[1].dtype
    return (_as_text(x) if dtype.kind == "O" else from_text(x, dtype),)


def _as_text(x: Array) -> Array:
    return x if x.dtype.kind == "O" else to_text(x)


def to_text(x: Array) -> Array:
    """Return numbers as text: the shortest that is read as the same number, in plain notation where that is short."""
    return text_array(map(_number_text, x.flat), x.shape)


def _number_text(value: Any) -> str:
    if isinstance(value, np.floating) or not np.isreal(value):
        if np.isnan(value):
            return "NaN"
        if np.isinf(value):
            return "INF" if value > 0 else "-INF"
    return str(value)


def from_text(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return the numbers that strings show.

    Raises:
        ValueError: If one shows none, or one that is not of an integer type.
    """
    read: Callable[[str], Any] = float
    if np.issubdtype(dtype, np.integer):
        read = _integer
    elif dtype == np.bool_:
        read = _truth_value
    values = [read(_plain(text)) for text in x.flat]
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        if any(not limits.min <= value <= limits.max for value in values):
            raise ValueError(f"a number is outside {limits.min} to {limits.max}")
    return np.array(values, dtype).reshape(x.shape)


def _plain(text: str) -> str:
    if "_" in text:  # Python reads 1_000 as a number
        raise ValueError(f"{text!r} is not a number")
    return text


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not value.is_integer():
            raise ValueError(f"{text!r} is not an integer") from None
        return int(value)


def _truth_value(text: str) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in known:
        raise ValueError(f"{text!r} is neither true nor false")
    return known[text.lower()]


START, END = "\x02", "\x03"


@implements("Tokenizer", domain="opbuild")
def _tokenize(node: Node, inputs: Any) -> Sequence[Array]:
    """Split each string; shorter lists are filled up, with marks at their ends if they are asked for."""
    x = inputs[0]
    if x.ndim not in (1, 2):
        raise ValueError(f"its input has the shape {list(x.shape)}, not [C] or [N, C]")
    rows = [*map(_splitter(node), x.flat)]
    if any(rows) and node.attrs.get("mark", 0):
        rows = [[START, *row, END] for row in rows]
    return (_filled(rows, x.shape if x.size else x.shape[:-1], node.text("pad_value", "")),)


def _splitter(node: Node) -> Callable[[str], list[str]]:
    """Return the function that makes tokens of a string."""
    least, separators = int(node.attrs.get("mincharnum", 1)), [*map(as_text, node.attrs.get("separators", ()))]
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
    return lambda text: [*_matches(text, compiled[0], least)]


Find = Callable[[str, int], "tuple[int, int] | None"]
"""Returns where the first match of a string from a place on begins and ends, the longest of those that begin there."""


def _matches(text: str, find: Find, least: int) -> Iterator[str]:
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
        tokens = [part for each in tokens for part in _separated_parts(each, find) if len(part) >= least]
    return tokens


def _separated_parts(text: str, find: Find) -> Iterator[str]:
    """Yield the parts around separators; an empty one takes the character behind it away."""
    at = 0
    while found := find(text, at) if at <= len(text) else None:
        first, end = found
        yield text[at:first]
        at = end if end > first else first + 1
    yield text[at:]


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


@implements("TfIdfVectorizer")
def _term_frequencies(node: Node, inputs: Any) -> Sequence[Array]:
    x, attrs = inputs[0], node.attrs
    places = {run: index for index, run in enumerate(_runs(attrs))}
    columns = [int(column) for column in attrs["ngram_indexes"]]
    weights = attrs.get("weights") or [1.0] * len(columns)
    mode = node.text("mode", "TF")
    rows = x.reshape(-1, x.shape[-1]) if x.ndim else x.reshape(1, 1)
    found = np.zeros((len(rows), max(columns) + 1), np.float32)
    for row, words in zip(found, rows.tolist(), strict=True):
        for run, count in _counts(words, attrs).items():
            if run in places:
                place = places[run]
                row[columns[place]] = {"TF": count, "IDF": weights[place], "TFIDF": count * weights[place]}[mode]
    return (found if x.ndim > 1 else found.reshape(-1),)


def _runs(attrs: Any) -> list[tuple[Any, ...]]:
    """Return the runs of the pool in order: those of one word, then of two, and so on."""
    words = attrs.get("pool_int64s") or [*map(as_text, attrs["pool_strings"])]
    begins = [int(each) for each in attrs["ngram_counts"]]
    runs = []
    for length, (begin, end) in enumerate(zip(begins, [*begins[1:], len(words)], strict=True), 1):
        runs += [tuple(words[place : place + length]) for place in range(begin, end, length)]
    return runs


def _counts(words: list[Any], attrs: Any) -> Counter[tuple[Any, ...]]:
    """Count the runs of a row, also those that leave out words between two: as many between any two of them."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for length in range(int(attrs["min_gram_length"]), int(attrs["max_gram_length"]) + 1):
        skips = range(1 if length == 1 else int(attrs["max_skip_count"]) + 1)
        for step in (skip + 1 for skip in skips):
            reach = step * (length - 1)
            counts.update(tuple(words[b : b + reach + 1 : step]) for b in range(len(words) - reach))
    return counts
