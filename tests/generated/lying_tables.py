"""Tables of offline models that lie: each field of each record changed, and a plan with the same lie for Python."""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

import numpy as np

from opbuild.dtypes import CODED, itemsize
from opbuild.graph.types import DTYPES, Array
from opbuild.offline import file
from opbuild.runtime.devices.cpu.library import element_type

TABLES = ("ports", "buffers", "steps", "arguments", "dims", "extents")
ROWS: dict[str, np.dtype[Any]] = {
    "ports": file._PORT,
    "buffers": file._BUFFER,
    "steps": file._STEP,
    "arguments": file._ARGUMENT,
    "dims": np.dtype([("extent", "<i4"), ("stride", "<i4")]),
    "extents": np.dtype([("extent", "<i8")]),
}
HEAD = file._HEAD
KINDS = file._KINDS
VALUES = (0, 1, -1, 2, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**56, 2**63 - 1, 2**63, 2**64 - 64)
MOST_ARGUMENTS = 32


class Malformed(Exception):
    """Tables that no plan can say: C refuses them."""


def number_of(dtype: str) -> int:
    """Return the number that a port's type has in tables."""
    code, bits = element_type(dtype)
    return code + 256 * bits + (65536 * (1 + CODED.index(dtype)) if dtype in CODED else 0)


@cache
def types() -> dict[int, str]:
    """Return the names of all types by their numbers."""
    return {number_of(dtype): dtype for dtype in DTYPES}


@dataclass
class Tables:
    """One signature's tables, taken apart.

    Attributes:
        head: What stands before them.
        rows: Each table.
        text: The strings.
        inputs: How many of the ports are inputs.
        counts: Counts that lie; None: those that are right.
    """

    head: Array
    rows: dict[str, Array]
    text: bytes
    inputs: int
    counts: list[int] | None = None

    @staticmethod
    def read(data: bytes) -> Tables:
        """Take tables apart.

        Raises:
            Malformed: If they are not what their head says.
        """
        if len(data) < HEAD.itemsize:
            raise Malformed("no head")
        head = np.frombuffer(data, HEAD, 1).copy()
        inputs, outputs, *counts, text = map(int, head["counts"][0])
        rows, at = {}, HEAD.itemsize
        for name, count in zip(TABLES, (inputs + outputs, *counts), strict=True):
            nbytes = count * ROWS[name].itemsize
            if nbytes > len(data) - at:
                raise Malformed(f"no {name}")
            rows[name] = np.frombuffer(data[at : at + nbytes], ROWS[name]).copy()
            at += nbytes
        if text != len(data) - at or not data[at:].endswith(b"\0"):
            raise Malformed("no text")
        return Tables(head, rows, data[at:], inputs)

    def counted(self) -> list[int]:
        """Return how many of each there are."""
        ports, *others = (len(self.rows[name]) for name in TABLES)
        return [self.inputs, ports - self.inputs, *others, len(self.text)]

    def write(self) -> bytes:
        """Put them together."""
        self.head["counts"] = self.counted() if self.counts is None else self.counts
        return b"".join([self.head.tobytes(), *(self.rows[name].tobytes() for name in TABLES), self.text])

    def string(self, at: int) -> str:
        """Return the string at a place."""
        if at >= len(self.text):
            raise Malformed("a string outside the text")
        return self.text[at : self.text.index(b"\0", at)].decode(errors="replace")


def _some(rows: Array, first: int, count: int) -> Array:
    if first + count > len(rows):
        raise Malformed("rows that are not there")
    return rows[first : first + count]


def _item(number: int, *, of_port: bool) -> str:
    if number not in types() or (number >= 65536 and not of_port):
        raise Malformed(f"type {number:#x}")
    return types()[number]


def plan_of(tables: Tables) -> dict[str, Any]:
    """Return the plan that says what tables say.

    Raises:
        Malformed: If a plan cannot say it.
    """
    t = tables
    if t.string(int(t.head["problem"][0])):
        raise Malformed("C is not to run it")
    ports = [_port(t, row) for row in t.rows["ports"]]
    used: dict[int, str] = {}
    for _, (dtype, _), buffer in ports:
        used.setdefault(buffer, dtype)
    kinds, nodes, views, end = [], [], [], 0
    for row in t.rows["steps"]:
        symbol, first, count, names, work, writes = map(int, row.tolist())
        if first != end or count > MOST_ARGUMENTS:
            raise Malformed("arguments that do not follow")
        arguments = [_view(t, argument, used) for argument in _some(t.rows["arguments"], first, count)]
        end += count
        views += arguments
        kinds.append([t.string(symbol), count, [dtype for *_, dtype in arguments], work, writes])
        nodes.append([t.string(names)])
    if end != len(t.rows["arguments"]):
        raise Malformed("arguments of no step")
    buffers, constants = _buffers(t, used)
    return {
        "name": "lies",
        "arena_size": int(t.head["arena"][0]),
        "zeroed": int(t.head["arena"][0]),
        "buffers": buffers,
        "dims": [dims for _, _, dims, _ in views],
        "steps": {
            "kinds": kinds,
            "kind": [*range(len(kinds))],
            "nodes": nodes,
            "hosts": [],
            "buffer": [buffer for buffer, *_ in views],
            "offset": [offset for _, offset, *_ in views],
            "shape": [*range(len(views))],
        },
        "inputs": ports[: t.inputs],
        "outputs": ports[t.inputs :],
        "constants": constants,
        "notes": {"operators": [], "lowering": {}},
    }


def _port(t: Tables, row: Any) -> Any:
    name, buffer, kind, rank, first, _, nbytes = map(int, row.tolist())
    dtype = _item(kind, of_port=True)
    shape = _some(t.rows["extents"], first, rank)["extent"].tolist()
    if nbytes != itemsize(dtype) * int(np.prod(np.array(shape, object))):
        raise Malformed("a port of other bytes")
    return [t.string(name), [dtype, shape], buffer]


def _view(t: Tables, row: Any, used: dict[int, str]) -> Any:
    buffer, kind, rank, first, offset = map(int, row.tolist())
    dtype = _item(kind, of_port=False)
    dims = [[int(extent), int(stride)] for extent, stride in _some(t.rows["dims"], first, rank).tolist()]
    if offset % itemsize(dtype):
        raise Malformed("part of an element")
    used.setdefault(buffer, dtype)
    return buffer, offset // itemsize(dtype), dims, dtype


def _buffers(t: Tables, used: dict[int, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    sorts, sizes, places, constants = [], [], [], []
    for index, (kind, _, nbytes, place) in enumerate(t.rows["buffers"].tolist()):
        dtype = used.get(index, "uint8")
        if kind >= len(KINDS) or nbytes % itemsize(dtype):
            raise Malformed("a buffer of no kind, or with part of an element")
        sorts.append([KINDS[kind], dtype])
        sizes.append(nbytes // itemsize(dtype))
        places.append(len(constants) if KINDS[kind] == "constant" else place)
        if KINDS[kind] == "constant":
            constants.append((nbytes, place))
    columns = {"sorts": sorts, "sort": [*range(len(sorts))], "size": sizes, "place": places}
    lists = zip(*constants, strict=True) if constants else ([], [])
    nbytes, offset = map(list, lists)
    return columns, {"digests": [""] * len(constants), "nbytes": nbytes, "offset": offset}


# -- lies -------------------------------------------------------------------------------------------------------------

Lie = tuple[Any, ...]


def lies(tables: Tables) -> Iterator[Lie]:
    """Yield each single lie: fields with other values or with another record's; records swapped, doubled, left out."""
    for field, width in (("arena", 8), ("problem", 4), ("zero", 4)):
        yield from (("head", field, value) for value in _fitting(width))
    for place in range(8):
        yield from (("count", place, value) for value in (*_fitting(4), "more", "less"))
    for name in TABLES:
        for row in range(len(tables.rows[name])):
            yield from (("swap", name, row), ("double", name, row), ("drop", name, row))
            for field in ROWS[name].names or ():
                width = ROWS[name][field].itemsize
                yield from (("set", name, row, field, value) for value in (*_fitting(width), "more", "less"))
                yield from (("copy", name, row, field, other) for other in range(len(tables.rows[name])))
    yield from (("text", place, 0) for place in range(len(tables.text)))
    yield ("cut", 0, 0)


def in_turn(tables: Sequence[Tables]) -> list[tuple[int, Lie]]:
    """Return all single lies with their signatures, in an order in which no field comes again before all others."""
    draw, by_field = random.Random(0), defaultdict[Any, list[tuple[int, Lie]]](list)
    for signature, each in enumerate(tables):
        for lie in lies(each):
            what, name, *rest = lie
            by_field[what, name if isinstance(name, str) else "", str(rest[1:2])].append((signature, lie))
    for own in by_field.values():
        draw.shuffle(own)
    turns = [(place, draw.random(), lie) for own in by_field.values() for place, lie in enumerate(own)]
    return [lie for *_, lie in sorted(turns, key=itemgetter(0, 1))]


def _fitting(width: int) -> list[int]:
    return [*dict.fromkeys(value % 2 ** (8 * width) for value in VALUES)]


def with_lie(tables: Tables, lie: Lie) -> Tables:
    """Return tables with a lie; one about a record that is not there any more is about another."""
    t = copy.deepcopy(tables)
    what, *rest = lie
    if what == "head":
        t.head[rest[0]] = rest[1]
    elif what == "count":
        t.counts = t.counted()
        t.counts[rest[0]] = _changed(t.counts[rest[0]], rest[1], 4)
    elif what == "text":
        t.text = t.text[: rest[0]] + bytes([t.text[rest[0] % len(t.text)] ^ 0x21]) + t.text[rest[0] + 1 :]
    elif what == "cut":
        t.text = t.text[:-1]
    elif len(t.rows[rest[0]]):
        _change_rows(t, what, *rest)
    return t


def _change_rows(t: Tables, what: str, name: str, row: int, field: str = "", value: Any = 0) -> None:
    rows = t.rows[name]
    row %= len(rows)
    if what == "swap":
        other = (row + 1) % len(rows)
        rows[[row, other]] = rows[[other, row]]
    elif what in ("double", "drop"):
        t.rows[name] = np.insert(rows, row, rows[row]) if what == "double" else np.delete(rows, row)
        t.inputs += (name == "ports" and row < t.inputs) * (1 if what == "double" else -1)
    else:
        width = ROWS[name][field].itemsize
        new = int(rows[field][value % len(rows)]) if what == "copy" else _changed(int(rows[field][row]), value, width)
        wrapped = new % 2 ** (8 * width)
        rows[field][row] = np.array(wrapped, f"<u{width}").view(ROWS[name][field])


def _changed(old: int, value: Any, width: int) -> int:
    steps = {"more": 1, "less": -1}
    return (old + steps[value] if value in steps else int(value)) % 2 ** (8 * width)


def drawn(seed: int, tables: Sequence[Tables], singles: Sequence[tuple[int, Lie]]) -> tuple[list[Tables], str]:
    """Return the tables of all signatures with the lies of a seed: one in turn, or two or three at random, by turns."""
    found = list(tables)
    draw = random.Random(seed)
    half = seed // 2 % len(singles)
    chosen = draw.sample(singles, draw.choice((2, 2, 3))) if seed % 2 else [singles[half]]
    for signature, lie in chosen:
        found[signature] = with_lie(found[signature], lie)
    return found, " and ".join(f"{signature}: {lie}" for signature, lie in chosen)
