"""The binding of a network for one signature of its inputs, and who makes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

from opbuild.events import BIND, BUILT, BY_NUMBERS, STORED, NetworkBound, step, tell
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

    @property
    def is_first_tier(self) -> bool:
        """Whether kernels of others compute a part of it."""
        return bool(self.report.pending)

    @property
    def built(self) -> int:
        """Operators that were compiled for it."""
        return self.report.built

    @property
    def built_later(self) -> int:
        """Operators that its calls compiled: none."""
        return 0

    def without_better(self) -> Binding:
        """Return it as one that stays, since there is no faster one."""
        return self._replace(better=None)


class Improvement(Protocol):
    """The way to a faster binding of an input signature."""

    def bind(self) -> Bound | None:
        """Return a faster one; None if there is none."""


class Unserved(NamedTuple):
    """The reason that a network cannot be bound to some shapes, and the remedy."""

    problem: str
    hint: str


class Runs(Protocol):
    """A runner of a network for one input signature, as ``Executor`` is."""

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
    def is_filled(self) -> bool:
        """Whether its arguments are those of others, filled with its numbers."""

    @property
    def blocks(self) -> Blocks[Arena]:
        """The memory that it runs in."""

    @property
    def runners(self) -> Sequence[Executor]:
        """The executors: of the network, or of each of its segments."""

    def run(self, inputs: Sequence[Array], given: Sequence[Array | None] = ()) -> list[Array]:
        """Run the network; see ``Executor.run``."""


class Bound(Protocol):
    """A network that is ready for one input signature, whole or in segments."""

    @property
    def executor(self) -> Runs:
        """Runs it."""

    @property
    def report(self) -> Report:
        """The report of its build."""

    @property
    def is_first_tier(self) -> bool:
        """Whether kernels of others compute a part of it, as far as is known."""

    @property
    def built(self) -> int:
        """Operators that were compiled for it."""

    @property
    def built_later(self) -> int:
        """Operators that were compiled for what its calls met, and those of others in the same segments."""

    @property
    def better(self) -> Improvement | None:
        """The source of a faster one, if there is any; see ``Binding``."""

    def without_better(self) -> Bound:
        """Return it as one that stays, since there is no faster one."""


F = TypeVar("F", bound="Callable[..., Binding | Unserved | None]")


def tells_bindings(bind: F) -> F:
    """Return the same function, whose bindings subscribers are told of."""

    @wraps(bind)
    def told(*args: Any, **kwargs: Any) -> Binding | Unserved | None:
        with step(BIND) as named:
            started = time.perf_counter()
            found = bind(*args, **kwargs)
            if isinstance(found, Binding):
                named(found.report.network)
                tell(_told(found, time.perf_counter() - started))
        return found

    return cast("F", told)


def _told(binding: Binding, seconds: float) -> NetworkBound:
    """Return the event of a binding."""
    executor, report = binding.executor, binding.report
    how = BUILT if binding.is_new else BY_NUMBERS if executor.is_filled else STORED
    why = report.image_reason if how == BUILT else ""
    return NetworkBound(report.network, executor.inputs, how, why, report.host, report.pending, seconds)


Binder = Callable[[Shapes], Bound]
"""Makes a network ready for further shapes of its inputs: builds it for them, or starts what is stored."""
