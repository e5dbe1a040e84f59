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
        better: Returns one that is faster, or None; asked for in the background when this one is called again.
        is_new: Whether it was lowered for this, not bound to what was lowered before.
    """

    executor: Executor
    report: Report
    better: Callable[[], Bound | None] | None = None
    is_new: bool = False


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
        """What runs, whole or in parts."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the network; see ``Executor.run``."""


class Bound(Protocol):
    """A network that is ready for one input signature, whole or in parts."""

    @property
    def executor(self) -> Runs:
        """Runs it."""

    @property
    def report(self) -> Report:
        """What its build did."""

    @property
    def better(self) -> Callable[[], Bound | None] | None:
        """Returns a faster one, or None; see ``Binding``."""


Binder = Callable[[Shapes], Bound]
"""Makes a network ready for further shapes of its inputs: builds it for them, or starts what is stored."""
