"""``print`` in ``construct``: a network prints each time it runs, with the values that it has then.

While a network is traced its code runs once and tensors have no values. What it prints is kept instead: a traced
tensor writes itself as a mark, ``<traced v3>``, and where a mark is printed its tensor becomes an output of the
network. After each run the lines are printed, in their order, with values in the place of the marks.
"""

from __future__ import annotations

import builtins
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from opbuild.frontend.cell import Symbol
from opbuild.mindspore.tensor import Tensor
from opbuild.platform.locks import Lock
from opbuild.platform.records import dataclass

_MARK = re.compile(r"Tensor\(shape=\[[\d, ]*\], dtype=\w+, value= <traced (\w+)>\)|<traced (\w+)(?::([^<>]*))?>")
"""What ``repr``, ``str`` and, with a quoted format, ``format`` give for a traced tensor."""


@dataclass(frozen=True)
class Line:
    """One call of ``print``: its text, with marks, and whether it asked for the stream to be flushed."""

    text: str
    flush: bool

    def marks(self) -> list[str]:
        """Return the names of the traced tensors, in order."""
        return [found[1] or found[2] for found in _MARK.finditer(self.text)]

    def show(self, values: Mapping[str, Tensor]) -> None:
        """Print the line with values."""

        def value(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            if name not in values:
                return found[0]
            return repr(values[name]) if found[1] else format(values[name], unquote(found[3] or ""))

        print(_MARK.sub(value, self.text), end="", flush=self.flush)


class _Recording(threading.local):
    """The lines that this thread keeps, while it traces."""

    lines: list[Line] | None = None


_RECORDING = _Recording()


class _Builtin:
    """Python's ``print``, replaced while any thread traces; the others still print."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._original: Callable[..., None] = builtins.print

    @contextmanager
    def replaced(self) -> Iterator[None]:
        with self._lock:
            if not self._users:
                self._original = builtins.print
                builtins.print = self._print
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    builtins.print = self._original

    def _print(self, *values: Any, sep: str | None = " ", end: str | None = "\n", file: Any = None,
               flush: bool = False) -> None:  # fmt: skip
        lines = _RECORDING.lines
        if lines is None or file not in (None, sys.stdout):
            self._original(*values, sep=sep, end=end, file=file, flush=flush)
            return
        text = (" " if sep is None else sep).join(map(str, values)) + ("\n" if end is None else end)
        lines.append(Line(text, flush))


_BUILTIN = _Builtin()


@contextmanager
def kept() -> Iterator[list[Line]]:
    """Keep this thread's output inside the block; if the block fails, print it at once to show how far it came."""
    before = _RECORDING.lines
    lines: list[Line] = []
    _RECORDING.lines = lines
    try:
        with _BUILTIN.replaced():
            yield lines
    except BaseException:
        _RECORDING.lines = before
        for line in lines:
            line.show({})
        raise
    finally:
        _RECORDING.lines = before


def marked(lines: Sequence[Line], symbols: Callable[[str], Symbol | None]) -> dict[str, Symbol]:
    """Return the symbols whose marks are printed, by name."""
    named = {name: symbols(name) for line in lines for name in line.marks()}
    return {name: symbol for name, symbol in named.items() if symbol is not None}
