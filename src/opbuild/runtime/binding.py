"""What a network is bound to for one signature of its inputs, and who binds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from opbuild.graph.types import Array
from opbuild.platform.records import NamedTuple
from opbuild.program import Port
from opbuild.report import Report
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.executor import Arena, Executor

Shapes = tuple[tuple[int, ...], ...]
"""The shape of each input, in order: what one binding of a network serves."""


class Binding(NamedTuple):
    """A network that is ready for one input signature.

    Attributes:
        executor: Runs it.
        report: What the build did.
        better: What gives a faster one; asked in the background when this one is called again.
        is_new: Whether it was lowered for this, not bound to what was lowered before.
    """

    executor: Executor
    report: Report
    better: Improvement | None = None
    is_new: bool = False


class Improvement(Protocol):
    """How the binding of an input signature gets faster."""

    def bind(self) -> Bound | None:
        """Return a faster one, or None."""


class Unserved(NamedTuple):
    """Why a network cannot be bound to some shapes, and what to do about it."""

    problem: str
    hint: str


class Runs(Protocol):
    """What runs a network for one input signature, as ``Executor`` does."""

    @property
    def inputs(self) -> Sequence[Port]:
        """The inputs in order."""

    @property
    def outputs(self) -> Sequence[Port]:
        """The outputs in order."""

    @property
    def arena_size(self) -> int:
        """Bytes of the memory for its temporaries."""

    @property
    def blocks(self) -> Blocks[Arena]:
        """The memory that it runs in."""

    @property
    def runners(self) -> Sequence[Executor]:
        """What runs: the network, or each of its segments."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the network; see ``Executor.run``."""


class Bound(Protocol):
    """A network that is ready for one input signature, whole or in segments."""

    @property
    def executor(self) -> Runs:
        """Runs it."""

    @property
    def report(self) -> Report:
        """What its build did."""

    @property
    def better(self) -> Improvement | None:
        """What gives a faster one, if anything does; see ``Binding``."""


Binder = Callable[[Shapes], Bound]
"""Makes a network ready for further shapes of its inputs: builds it for them, or starts what is stored."""
