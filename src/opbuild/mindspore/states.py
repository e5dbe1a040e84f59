"""Parameters of a trace: constants of a network for inference, states of one that changes them.

A network for inference has its weights built in, and holds while they stay as they are. What trains changes them with
each call, so its trace takes the parameters that it uses as inputs and returns what it assigned to them. Random numbers
are inputs of such a trace too, drawn before each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from opbuild.frontend.cell import Symbol, Trace
from opbuild.graph.types import Array, TensorType
from opbuild.mindspore.parameter import Parameter
from opbuild.platform.records import dataclass


class StatesNeededError(Exception):
    """A network whose parameters are constants changes some, or draws: it is traced again with states."""


@dataclass(frozen=True)
class Drawn:
    """An input whose elements ``draw`` draws before each call."""

    type: TensorType
    draw: Callable[[], Array]

    def asnumpy(self) -> Array:
        """Return new elements."""
        return self.draw()


class States:
    """The parameters of one trace.

    Args:
        trace: The trace.
        are_constant: Whether parameters are constants.
    """

    def __init__(self, trace: Trace, are_constant: bool) -> None:
        self.trace = trace
        self.constants: dict[int, tuple[Parameter, int]] | None = {} if are_constant else None
        self.inputs: list[Parameter | Drawn] = []
        self._read: dict[int, tuple[Parameter, Symbol]] = {}
        self._written: dict[int, tuple[Parameter, Symbol]] = {}

    @property
    def outputs(self) -> list[tuple[Parameter, Symbol]]:
        """The parameters that were assigned, and their values."""
        return list(self._written.values())

    def read(self, parameter: Parameter) -> Symbol:
        """Return the value that a parameter has now: the one assigned last, or the one before the call."""
        if self.constants is not None:
            self.constants[id(parameter)] = parameter, parameter.version
            return self.trace.constant(parameter.asnumpy(), parameter.name)
        key = id(parameter)
        if key not in self._read:
            self._read[key] = parameter, self._input(parameter)
        return self._written.get(key, self._read[key])[1]

    def first(self, parameter: Parameter) -> Symbol:
        """Return the value that a parameter had before the call."""
        self.read(parameter)
        return self._read[id(parameter)][1]

    def write(self, parameter: Parameter, symbol: Symbol) -> None:
        """Assign to a parameter.

        Raises:
            StatesNeededError: If parameters are constants.
        """
        self.need()
        self.read(parameter)
        self._written[id(parameter)] = parameter, symbol

    def draw(self, drawn: Drawn) -> Symbol:
        """Return a value that is drawn before each call.

        Raises:
            StatesNeededError: If parameters are constants: such a network gets nothing but its arguments.
        """
        self.need()
        return self._input(drawn)

    def need(self) -> None:
        """Refuse to go on with constants.

        Raises:
            StatesNeededError: If parameters are constants.
        """
        if self.constants is not None:
            raise StatesNeededError

    def _input(self, source: Parameter | Drawn) -> Symbol:
        self.inputs.append(source)
        return self.trace.input(source.type)


_CURRENT: ContextVar[States | None] = ContextVar("states", default=None)


def current_states() -> States | None:
    """Return the parameters of the present trace; None outside of traces."""
    return _CURRENT.get()


def need_states() -> States:
    """Return the states of the present trace.

    Raises:
        StatesNeededError: If parameters are constants in it.
    """
    found = _CURRENT.get()
    if found is None:
        raise StatesNeededError
    found.need()
    return found


@contextmanager
def active(states: States) -> Iterator[None]:
    """Make these the parameters of the traces inside."""
    token = _CURRENT.set(states)
    try:
        yield
    finally:
        _CURRENT.reset(token)
