"""Python code that Dynamo did not hand over: all of it, what lies at a graph break, or calls beyond its limit."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from types import CodeType
from typing import Any, Literal

import torch

from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple

_TORCH = str(Path(torch.__file__).parent)
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.*)_at_\d+")


class Span(NamedTuple):
    """Lines of a file that are a function's code."""

    file: str
    first: int
    last: int

    def has(self, file: str, line: int) -> bool:
        """Return whether a line is among them."""
        return file == self.file and self.first <= line <= self.last


def span_of(code: CodeType) -> Span:
    """Return the lines of a function's code, and of what it defines inside."""
    inner = [span_of(each).last for each in code.co_consts if isinstance(each, CodeType)]
    lines = [line for *_, line in code.co_lines() if line]
    return Span(code.co_filename, code.co_firstlineno, max([code.co_firstlineno, *lines, *inner]))


def module_spans(module: torch.nn.Module) -> set[Span]:
    """Return the lines of ``forward`` of a module and of those in it, but of torch's own classes."""
    codes = {getattr(type(each).forward, "__code__", None) for each in module.modules()}
    spans = {span_of(each) for each in codes if each is not None}
    return {each for each in spans if not each.file.startswith(_TORCH)}


def is_torchs_class(module: torch.nn.Module) -> bool:
    """Return whether ``forward`` of a module is torch's own code."""
    code = getattr(type(module).forward, "__code__", None)
    return code is not None and code.co_filename.startswith(_TORCH)


class Uncompiled(NamedTuple):
    """A function that Dynamo did not hand over as a whole.

    Attributes:
        file: Its file.
        line: The line where it begins.
        name: Its name.
        what: ``all``, or what lies at a graph ``break``, or the ``calls`` beyond the limit of graphs.
        why: The reason that Dynamo gives.
    """

    file: str
    line: int
    name: str
    what: Literal["all", "break", "calls"]
    why: str

    @property
    def is_torchs(self) -> bool:
        """Whether it is torch's own code; Dynamo does not say of which module."""
        return self.file.startswith(_TORCH)

    def __str__(self) -> str:
        where = "a module of torch's" if self.is_torchs else f"{self.name} ({Path(self.file).name}:{self.line})"
        text = {
            "all": "{} is not compiled",
            "break": "graph break in {}",
            "calls": "further calls of {} are not compiled",
        }[self.what]
        return f"{text.format(where)}: {self.why}"


class Watch:
    """Reads the metrics of Dynamo's compilations, of which it keeps the last ones alone."""

    def __init__(self) -> None:
        self._until = 0
        self._codes: dict[str, tuple[str, int, str]] = {}
        self._found: dict[tuple[str, str], Uncompiled] = {}

    def look(self, metrics: Iterable[Any] | None = None) -> None:
        """Take note of what came since it looked last.

        Args:
            metrics: Dynamo's (default those of this process; none if it was not imported).
        """
        if metrics is None:
            utils = sys.modules.get("torch._dynamo.utils")
            metrics = () if utils is None else utils.get_compilation_metrics()
        for each in metrics:
            if (each.end_time_us or 0) > self._until and each.compile_id and each.is_forward is not False:
                self._until = each.end_time_us
                self._add(each)

    def found(self) -> tuple[Uncompiled, ...]:
        """Return the functions that were not compiled since Dynamo was reset."""
        return tuple(dict.fromkeys(self._found.values()))

    def forget(self) -> None:
        """Forget all that came so far."""
        self.look()
        self._codes.clear()
        self._found.clear()

    def _add(self, metrics: Any) -> None:
        if metrics.compile_id == "0/0":  # Dynamo counts anew once it was reset
            self._codes.clear()
            self._found.clear()
        frame = metrics.compile_id.partition("/")[0]
        if metrics.co_filename:
            name = _RESUMED.sub(r"\1", metrics.co_name or "")
            self._codes[frame] = (metrics.co_filename, metrics.co_firstlineno or 0, name)
        code = self._codes.get(frame)
        reasons = [metrics.fail_reason] if metrics.fail_reason else sorted(metrics.restart_reasons or ())
        if code is not None:
            what: Any = "break" if not metrics.fail_reason else "all" if metrics.co_filename else "calls"
            for reason in reasons:
                self._found[frame, reason] = Uncompiled(*code, what, _headline(reason))


def _headline(reason: str) -> str:
    """Return the line of a reason that says most: the first one that announces no other."""
    lines = [line.strip() for line in reason.splitlines()]
    return next((line for line in lines if line and not line.endswith(":")), "Dynamo gives no reason")
