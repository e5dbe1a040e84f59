"""States: parameters that a network reads from outside and gives new elements, instead of having them built in.

A network for inference has its weights as constants. What trains changes them with each call, so its trace takes the
parameters that it uses as inputs and returns what it assigned to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from opbuild.frontend.cell import Symbol, Trace
from opbuild.mindspore.parameter import Parameter


class StatesNeededError(Exception):
    """A network whose parameters are constants changes some: it is traced again with states."""


class States:
    """The parameters of one trace.

    Args:
        trace: The trace.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._read: dict[int, tuple[Parameter, Symbol]] = {}
        self._written: dict[int, tuple[Parameter, Symbol]] = {}

    @property
    def inputs(self) -> list[Parameter]:
        """The parameters that are inputs, in order."""
        return [parameter for parameter, _ in self._read.values()]

    @property
    def outputs(self) -> list[tuple[Parameter, Symbol]]:
        """The parameters that were assigned, and what."""
        return list(self._written.values())

    def read(self, parameter: Parameter) -> Symbol:
        """Return the value that a parameter has now: what was assigned last, or what it had before the call."""
        key = id(parameter)
        if key not in self._read:
            self._read[key] = parameter, self.trace.input(parameter.type)
        return self._written.get(key, self._read[key])[1]

    def write(self, parameter: Parameter, symbol: Symbol) -> None:
        """Assign to a parameter."""
        self.read(parameter)
        self._written[id(parameter)] = parameter, symbol


_CURRENT: ContextVar[States | None] = ContextVar("states", default=None)


def current_states() -> States | None:
    """Return the states of what is traced now; None where parameters are constants."""
    return _CURRENT.get()


def need_states() -> States:
    """Return the states of what is traced now.

    Raises:
        StatesNeededError: If parameters are constants in it.
    """
    found = _CURRENT.get()
    if found is None:
        raise StatesNeededError
    return found


@contextmanager
def active(states: States | None) -> Iterator[None]:
    """Make these the states of what is traced inside."""
    token = _CURRENT.set(states)
    try:
        yield
    finally:
        _CURRENT.reset(token)
