"""``Parameter``: a named tensor that a cell owns; and the parameters of a trace, constants or states.

A network for inference has its weights built in, and holds while they stay as they are. What trains changes them with
each call, so its trace takes the parameters that it uses as inputs and returns what it assigned to them. Random numbers
are inputs of such a trace too, drawn before each call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from opbuild.families.blocked import BLOCK
from opbuild.frontend.cell import Symbol, Trace
from opbuild.graph import weight_layout
from opbuild.graph.types import Array, TensorType
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.tensor import Tensor
from opbuild.platform.locks import RLock
from opbuild.platform.records import dataclass
from opbuild.runtime.reused import copied, new_array


class _Blocks(np.ndarray[Any, np.dtype[Any]]):
    """Weights in blocks."""


class Parameter(Tensor):
    """A tensor that belongs to a cell, e.g. a weight. Networks built from the cell follow when its data are replaced.

    A step of training changes it in place; the first one puts it where networks' outputs lie. What was read before, as
    an array or tensor, stays as it was: then the step works on a copy. Who reads it in another thread waits until a
    step that changes it has ended. A step may keep it in the blocks that its kernels read, until somebody reads it.

    Args:
        default_input: The data: anything that ``Tensor`` takes.
        name: Its name; the cell that it is assigned to names it after the attribute if none is given.
        requires_grad: Whether ``trainable_params`` names it.
        layerwise_parallel, parallel_optimizer: Kept for programs that ask.
    """

    def __init__(self, default_input: Any, name: str | None = None, requires_grad: bool = True,
                 layerwise_parallel: bool = False, parallel_optimizer: bool = True) -> None:  # fmt: skip
        super().__init__(default_input)
        super().asnumpy()
        self._lock = RLock()
        self._is_own, self._readers = False, 0
        if name is not None and not isinstance(name, str):
            raise ArgumentTypeError(f"the name of a Parameter is {name!r}", "give a string")
        self.name = name or "Parameter"
        self.named = name is not None
        self.requires_grad = requires_grad
        self.layerwise_parallel = layerwise_parallel
        self.parallel_optimizer = parallel_optimizer
        self.version = 0
        self.stays_plain = False  # networks that take turns want it so

    def set_data(self, data: Any, slice_shape: bool = False) -> Parameter:
        """Replace the data; networks that use the parameter are bound again on their next call."""
        new = Tensor(data, self.dtype)
        if new.shape != self.shape and not slice_shape:
            raise ArgumentValueError(
                f"set_data of {self.name} with shape {new.shape}", f"the parameter's shape is {self.shape}"
            )
        self._hold(new.asnumpy(), is_own=False)
        return self

    def take(self, array: Array, *, blocked: bool = False) -> None:
        """Take an array that a network made and nobody else has as the data, perhaps in blocks: nothing is copied."""
        self._hold(array.view(_Blocks) if blocked else array, is_own=True)

    def _hold(self, array: Array, *, is_own: bool) -> None:
        with self._lock:
            self._value, self._is_own = array, is_own
            self.version += 1

    def _lay(self, *, blocked: bool) -> bool:
        """Bring the data into the blocks that kernels read, or out of them; return whether they lay otherwise."""
        array = data_of(self)
        if blocked == isinstance(array, _Blocks):
            return False
        if blocked:
            self._value = weight_layout.in_blocks(array, BLOCK, new_array).view(_Blocks)
        else:
            self._value = weight_layout.plain(array, new_array)
        self._is_own = True
        return True

    @property
    def type(self) -> TensorType:
        """Element type and shape."""
        array = data_of(self)
        shape = weight_layout.plain_shape(array.shape) if isinstance(array, _Blocks) else array.shape
        return TensorType(array.dtype.name, shape)

    def asnumpy(self) -> Array:
        """Return the data as a numpy array, which shares the parameter's memory until a step changes the parameter."""
        with self._lock:
            self._lay(blocked=False)
            self._is_own = False
            return super().asnumpy()

    def assign_value(self, value: Any) -> Parameter:
        """Replace the data."""
        return self.set_data(value)

    def value(self) -> Tensor:
        """Return the data as a plain tensor."""
        return Tensor.of(self.asnumpy())

    @property
    def data(self) -> Parameter:
        """The parameter itself."""
        return self

    def clone(self, init: Any = "same") -> Parameter:
        """Return a parameter with a copy of the data, or with those that an initializer, a name or a number makes."""
        from opbuild.mindspore.initializer import initializer  # it knows tensors

        data = self.asnumpy() if init == "same" else initializer(init, self.shape, self.dtype)
        return Parameter(data, self.name, self.requires_grad, self.layerwise_parallel, self.parallel_optimizer)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            self._lay(blocked=False)
            return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=RLock(), _is_own=False, _readers=0)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        new = self.clone()
        new.named = self.named
        memo[id(self)] = new  # what two cells share stays shared
        return new

    def __repr__(self) -> str:
        return (
            f"Parameter (name={self.name}, shape={self.shape}, dtype={self.dtype}, requires_grad={self.requires_grad})"
        )

    def __str__(self) -> str:
        return repr(self)


@contextmanager
def in_use(
    read: Sequence[Parameter], changed: Iterable[Parameter], blocked: Collection[Parameter] = ()
) -> Iterator[dict[int, Array]]:
    """Let a call of a network use the arrays of parameters; give these, by the parameters' identities.

    Args:
        read: Those that it only reads: what changes them meanwhile works on copies.
        changed: Those that it changes in place: nobody reads them meanwhile.
        blocked: Those of them that it wants in blocks.
    """
    begun, held, in_blocks = list[Parameter](), list[Parameter](), frozenset(map(id, blocked))
    arrays: dict[int, Array] = {}
    try:
        for parameter in read:
            with parameter._lock:
                parameter.stays_plain |= parameter._lay(blocked=False)
                parameter._readers += 1
                arrays[id(parameter)] = data_of(parameter)  # what changes it later works on another
            begun.append(parameter)
        for parameter in sorted(changed, key=id):  # in one order, or two networks would wait for each other
            parameter._lock.acquire()
            held.append(parameter)
            is_new = parameter._lay(blocked=id(parameter) in in_blocks)
            if not is_new and (parameter._readers or not parameter._is_own):
                parameter.take(copied(data_of(parameter)))
            parameter.version += 1
            arrays[id(parameter)] = data_of(parameter)
        yield arrays
    finally:
        for parameter in held:
            parameter._lock.release()
        for parameter in begun:
            with parameter._lock:
                parameter._readers -= 1


def data_of(parameter: Parameter) -> Array:
    """Return the array of a parameter that is in use; nobody may keep it."""
    return Tensor.asnumpy(parameter)


class ParameterTuple(tuple[Parameter, ...]):
    """Several parameters of a cell."""

    def __new__(cls, iterable: Iterable[Parameter]) -> ParameterTuple:
        """Check that every item is a parameter."""
        items = tuple(iterable)
        if not all(isinstance(item, Parameter) for item in items):
            raise ArgumentTypeError("ParameterTuple was given something that is no Parameter")
        return super().__new__(cls, items)

    def clone(self, prefix: str, init: Any = "same") -> ParameterTuple:
        """Return copies whose names begin with ``prefix`` and a dot; ``init`` as of ``Parameter.clone``."""
        if not isinstance(prefix, str):
            raise ArgumentTypeError(f"the prefix of clone is {prefix!r}", "give a string")
        made = ParameterTuple(each.clone(init) for each in self)
        for parameter in made:
            parameter.name, parameter.named = f"{prefix}.{parameter.name}", True
        return made


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
        """Assign to a parameter; constants are refused."""
        self.need()
        self.read(parameter)
        self._written[id(parameter)] = parameter, symbol

    def draw(self, drawn: Drawn) -> Symbol:
        """Return a value that is drawn before each call; a network of constants gets nothing but its arguments."""
        self.need()
        return self._input(drawn)

    def need(self) -> None:
        """Refuse to go on with constants, by a ``StatesNeededError``."""
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
    """Return the states of the present trace; a ``StatesNeededError`` says that parameters are constants in it."""
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
