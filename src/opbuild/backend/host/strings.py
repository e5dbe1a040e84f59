"""Operators on text: tensors of it are arrays of Python's strings (dtype ``object``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.matching import RegularExpression
from opbuild.backend.host.movement import TEXT, implements
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
    width = max(map(len, parts), default=0)
    filled = (each for part in parts for each in (*part, *[""] * (width - len(part))))
    return text_array(filled, (*x.shape, width)), np.array([*map(len, parts)], np.int64).reshape(x.shape)


@implements("StringNormalizer")
def _normalize(node: Node, inputs: Any) -> Sequence[Array]:
    """Leave stop words out and change cases. Nothing left is one empty string."""
    x = inputs[0]
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ValueError("its input has to have the shape [C] or [1, C]")
    same: Callable[[str], str] = str if node.attrs.get("is_case_sensitive", 0) else str.lower
    stops = {same(_text(word)) for word in node.attrs.get("stopwords", ())}
    change: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    changed = change[node.text("case_change_action", "NONE")]
    kept = [changed(word) for word in x.flat if same(word) not in stops] or [""]
    return (text_array(kept, (*x.shape[:-1], len(kept))),)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@implements("RegexFullMatch")
def _full_match(node: Node, inputs: Any) -> Sequence[Array]:
    x, pattern = inputs[0], RegularExpression(node.text("pattern", ""))
    return (np.array([pattern.fullmatch(text) for text in x.flat], np.bool_).reshape(x.shape),)


@implements("Equal", on_text=True)
def _equal(node: Node, inputs: Any) -> Sequence[Array]:
    return (np.asarray(inputs[0] == inputs[1], np.bool_),)


@implements("Where", on_text=True)
def _where(node: Node, inputs: Any) -> Sequence[Array]:
    return (np.where(*inputs),)


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
    return text_array(map(_shown, x.flat), x.shape)


def _shown(value: Any) -> str:
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
        read = _truth
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


def _truth(text: str) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in known:
        raise ValueError(f"{text!r} is neither true nor false")
    return known[text.lower()]
