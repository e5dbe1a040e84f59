"""Fuzzing: changed copies of valid files, readers run in processes of their own, and how many inputs are tried.

The suite tries some hundred inputs for each reader. With ``OPBUILD_FUZZ=20000`` in the environment the tests try so
many, and print what became of them; when all end, one table has the counts of each class (``campaign``). Generators
that call ``check_seeds`` are in it by their names, other tests by their files.
"""

from __future__ import annotations

import copy
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from support.seeds import Check, Tally, try_seeds

CAMPAIGN = int(os.environ.get("OPBUILD_FUZZ") or 0)
INPUTS = CAMPAIGN or 150
"""Inputs for each reader."""

SEED = int(os.environ.get("OPBUILD_FUZZ_SEED", "0")) or (int(time.time()) * 1000 if CAMPAIGN else 1)
"""Where seeds begin."""

NUMBERS = [b"\0" * 8, b"\xff" * 8, b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\xff" * 9 + b"\x01", b"\x80" * 12, b"\x7f"]
"""Sizes and lengths that lie: zero, the largest, negative ones, varints of ten bytes and more."""

HOSTILE: list[Any] = [
    *(None, True, -1, 0, 1, 3, 64, 2**31 - 1, 2**31, 2**40, 2**63, -(2**63), 10**30, 0.5, 1e308, float("nan")),
    *(float("inf"), "", "x", "\0", "../../../etc/passwd", "/dev/zero", "a" * 5000, "0" * 64, "float64", "\ud800"),
    *([], {}, [[]], [1, 2, 3], [2**62, 2**62], {"a": {}}, "temporary", "input"),
]
"""JSON values that a reader does not expect."""


def check_seeds(name: str, check: Check, seeds: range | int = INPUTS, processes: int | None = None) -> Tally:
    """Call a check with seeds; return what became of them.

    Args:
        name: What is checked; printed with the counts, and the class in a campaign's table.
        check: Takes a seed.
        seeds: Which, or how many from ``SEED`` on.
        processes: See ``try_seeds``; None: one, in a campaign as many as there are cores.

    Raises:
        AssertionError: If one is wrong, foreign, crashed or hung; shows which, and what was said.
    """
    usual = (os.cpu_count() or 1) if CAMPAIGN else 1
    chosen = range(SEED, SEED + seeds) if isinstance(seeds, int) else seeds
    tally = try_seeds(name, check, chosen, usual if processes is None else processes)
    faults = [f"{name}, seed {seed}: {outcome}: {said}" for seed, outcome, said in tally.faults[:5]]
    assert not faults, "\n\n".join(faults)
    return tally


Change = tuple[int, int, int]


def changed(content: bytes, changes: Sequence[Change], others: Sequence[bytes] = ()) -> bytes:
    """Return bytes with flips, cuts, removed, doubled and foreign pieces, and numbers that lie."""
    data = bytearray(content)
    for kind, where, value in changes:
        at = where % (len(data) + 1)
        end = min(len(data), at + 1 + value % 64)
        if kind in (0, 1) and data:
            data[at - 1] = value if kind == 0 else data[at - 1] ^ (1 << value % 8)
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at:end]
        elif kind == 4:
            data[at:at] = data[at:end] * (1 + value % 5)
        elif kind == 5:
            number = NUMBERS[value % len(NUMBERS)]
            data[at : at + len(number)] = number
        elif kind == 6 and others:
            other = others[value % len(others)]
            data[at:end] = other[where % (len(other) + 1) :][:256]
        elif kind == 7:
            data[at:at] = bytes([value]) * (1 + where % 300)
        elif kind == 8:
            data[at:at] = (b"[" if value % 2 else b"{") * (800 + where % 1000)
    return bytes(data)


def changed_json(value: Any, changes: Sequence[Change]) -> Any:
    """Return a JSON value with some of its parts replaced by hostile ones, removed, doubled, or nested deeply."""
    root = [copy.deepcopy(value)]
    is_nested = False  # once: what is nested in itself can the test not write
    for kind, where, number in changes:
        holder, place = _place(root, where)
        if kind == 0 and isinstance(holder, dict):
            del holder[place]
        elif kind == 1 and isinstance(holder, list) and holder is not root:
            holder.insert(place, holder[place])
        elif kind == 2 and not is_nested:
            holder[place] = _nested(200 + 5 * number, number % 2)
            is_nested = True
        elif kind == 3 and isinstance(holder, list) and holder is not root:
            del holder[place]
        elif kind == 4 and isinstance(holder[place], (int, float)) and not isinstance(holder[place], bool):
            holder[place] += number - 128
        else:
            holder[place] = copy.deepcopy(HOSTILE[number % len(HOSTILE)])
    return root[0]


def to_bytes(value: Any) -> bytes:
    """Return JSON as a file holds it, however deep it is."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode(errors="surrogatepass")


def _nested(depth: int, kind: int) -> Any:
    value: Any = 0
    for _ in range(min(depth, 700)):  # what the test itself can still copy and write
        value = {"a": value} if kind else [value]
    return value


def _place(root: list[Any], where: int) -> tuple[Any, Any]:
    """Return a container in a JSON value and a place in it, any of them."""
    places: list[tuple[Any, Any]] = [(root, 0)]
    stack: list[Any] = [root[0]]
    while stack:
        value = stack.pop()
        keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        places += [(value, key) for key in keys]
        stack += [value[key] for key in keys]
    return places[where % len(places)]


def fuzz(name: str, read: Callable[[list[Change], int], str], *, inputs: int = INPUTS) -> Counter[str]:
    """Call a reader with many changes, in processes of their own, and return how often each outcome was.

    Args:
        name: The reader's name.
        read: Takes changes and a number that picks among variants, and returns an outcome in a word. It must raise
            nothing.
        inputs: How many.

    Raises:
        AssertionError: If it raised, crashed, hung or took too much memory; shows what, and the seed of the changes.
    """

    def one(seed: int) -> tuple[str, str]:
        draw = random.Random(seed)
        return read([_change(draw) for _ in range(draw.randint(1, 4))], draw.randint(0, 2**16)), ""

    return check_seeds(name, one, inputs).outcomes


def _change(draw: random.Random) -> Change:
    """Return a change; half of them are near the beginning, where headers are, and many with the least or greatest."""
    where, value = draw.choice((64, 2**24)), draw.choice((0, 255, draw.randint(0, 255)))
    return draw.randint(0, 8), draw.randint(0, where), value
