"""Fuzzing: changed copies of valid files, readers run in a process of their own, and how many inputs are tried.

The suite tries some hundred inputs for each reader. With ``OPBUILD_FUZZ=20000`` in the environment the tests try so
many, and print what became of them.
"""

from __future__ import annotations

import copy
import faulthandler
import json
import os
import resource
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

CAMPAIGN = int(os.environ.get("OPBUILD_FUZZ") or 0)
INPUTS = CAMPAIGN or 150
"""Inputs for each reader."""

HANGS_AFTER = 60
"""Seconds in which one input must be read; they take milliseconds."""

MEMORY = 6 * 2**30
"""Bytes of address space that a reader may add to what the test has."""

NUMBERS = [b"\0" * 8, b"\xff" * 8, b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\xff" * 9 + b"\x01", b"\x80" * 12, b"\x7f"]
"""Sizes and lengths that lie: zero, the largest, negative ones, varints of ten bytes and more."""

HOSTILE: list[Any] = [
    *(None, True, -1, 0, 1, 3, 64, 2**31 - 1, 2**31, 2**40, 2**63, -(2**63), 10**30, 0.5, 1e308, float("nan")),
    *(float("inf"), "", "x", "\0", "../../../etc/passwd", "/dev/zero", "a" * 5000, "0" * 64, "float64", "\ud800"),
    *([], {}, [[]], [1, 2, 3], [2**62, 2**62], {"a": {}}, "temporary", "input"),
]
"""JSON values that a reader does not expect."""

Change = tuple[int, int, int]
CHANGES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2**24), st.integers(0, 255)), min_size=1, max_size=4)


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
    for kind, where, number in changes:
        holder, place = _place(root, where)
        if kind == 0 and isinstance(holder, dict):
            del holder[place]
        elif kind == 1 and isinstance(holder, list) and holder is not root:
            holder.insert(place, holder[place])
        elif kind == 2:
            holder[place] = _nested(200 + 5 * number, number % 2)
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
    """Call a reader with many changes, in a process of its own, and return how often each outcome was.

    Args:
        name: The reader's name.
        read: Takes changes and a number that picks among variants, and returns an outcome in a word. It must raise
            nothing.
        inputs: How many.

    Raises:
        AssertionError: If it raised, crashed, hung or took too much memory; shows the changes.
    """
    get, put = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(get)
        _child(put, read, inputs)
    os.close(put)
    with os.fdopen(get, "rb") as pipe:
        lines = pipe.read().decode(errors="replace").splitlines()
    _, status = os.waitpid(child, 0)
    outcomes = Counter(line[1:] for line in lines if line.startswith("="))
    said = "\n".join(line[1:] for line in lines if line.startswith("!"))
    last = next((line[1:] for line in reversed(lines) if line.startswith("?")), "nothing")
    assert status == 0, f"{name}: the reader's process ended with {status:#x} at {last}\n{said}"
    if CAMPAIGN:
        print(f"\nfuzz {name}: {sum(outcomes.values())} inputs: {dict(sorted(outcomes.items()))}", file=sys.__stderr__)
    return outcomes


def _child(pipe: int, read: Callable[[list[Change], int], str], inputs: int) -> None:
    code = 1
    try:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.enable()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

        @settings(
            max_examples=inputs,
            deadline=None,
            database=None,
            derandomize=not CAMPAIGN,
            phases=(Phase.generate,),  # an input that fails is short, and shrinking takes minutes
            suppress_health_check=list(HealthCheck),
        )
        @given(CHANGES, st.integers(0, 2**16))
        def one(changes: list[Change], pick: int) -> None:
            os.write(pipe, f"?{changes}, {pick}\n".encode())
            signal.alarm(HANGS_AFTER)
            outcome = read(changes, pick)
            os.write(pipe, f"={outcome}\n".encode())

        one()
        code = 0
    except BaseException:
        text = "".join(traceback.format_exc().splitlines(keepends=True)[-40:])
        os.write(pipe, "".join(f"!{line}\n" for line in text.splitlines()).encode())
    finally:
        os._exit(code)
