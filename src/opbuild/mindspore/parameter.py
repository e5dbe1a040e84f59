"""``Parameter``: a named tensor that a cell owns."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from opbuild.graph.types import Array
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.tensor import Tensor


class Parameter(Tensor):
    """A tensor that belongs to a cell, e.g. a weight. Networks built from the cell follow when its data are replaced.

    A step of training changes it in place. What was read before, as an array or tensor, stays as it was: then the step
    works on a copy. Who reads it in another thread waits until a step that changes it has ended.

    Args:
        default_input: The data: anything that ``Tensor`` takes.
        name: Its name; the cell that it is assigned to names it after the attribute if none is given.
        requires_grad: Whether ``trainable_params`` names it.
        layerwise_parallel: Kept for programs that ask.
        parallel_optimizer: Kept for programs that ask.
    """

    _lock: threading.RLock | None = None
    """Held while a network changes it; None as long as none does."""
    _is_lent = False
    """Whether somebody may have the array."""
    _readers = 0
    """Calls of networks that read the array now."""

    def __init__(self, default_input: Any, name: str | None = None, requires_grad: bool = True,
                 layerwise_parallel: bool = False, parallel_optimizer: bool = True) -> None:  # fmt: skip
        super().__init__(default_input)
        self.asnumpy()
        if name is not None and not isinstance(name, str):
            raise ArgumentTypeError(f"the name of a Parameter is {name!r}", "give a string")
        self.name = name or "Parameter"
        self.named = name is not None
        self.requires_grad = requires_grad
        self.layerwise_parallel = layerwise_parallel
        self.parallel_optimizer = parallel_optimizer
        self.version = 0

    def set_data(self, data: Any, slice_shape: bool = False) -> Parameter:
        """Replace the data; networks that use the parameter are bound again on their next call.

        Raises:
            ArgumentValueError: If the shape differs and ``slice_shape`` is not set.
        """
        new = Tensor(data, self.dtype)
        if new.shape != self.shape and not slice_shape:
            raise ArgumentValueError(
                f"set_data of {self.name} with shape {new.shape}", f"the parameter's shape is {self.shape}"
            )
        self.take(new.asnumpy())
        return self

    def take(self, array: Array) -> None:
        """Take an array that nobody else has as the data: nothing is copied."""
        with self._lock or nullcontext():
            self._value, self._is_lent = array, False
            self.version += 1

    @property
    def lock(self) -> threading.RLock:
        """What is held while a network changes it."""
        assert self._lock is not None  # noqa: S101 - ``let_change`` was called
        return self._lock

    def asnumpy(self) -> Array:
        """Return the data as a numpy array, which shares the parameter's memory until a step changes the parameter."""
        if self._lock is None:
            return super().asnumpy()
        with self._lock:
            self._is_lent = True
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
        own = ("_lock", "_is_lent", "_readers")
        return {name: value for name, value in self.__dict__.items() if name not in own}

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


def let_change(parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """Prepare parameters for networks that change them in place; return them in the order in which they are locked."""
    found = tuple(sorted(parameters, key=id))
    for parameter in found:
        parameter._is_lent = parameter._is_lent or parameter._lock is None  # who read it before is not known
        parameter._lock = parameter._lock or threading.RLock()
    return found


@contextmanager
def in_use(read: Iterable[Parameter], changed: Sequence[Parameter]) -> Iterator[None]:
    """Let a call of a network use the arrays of parameters, as ``data_of`` gives them.

    Args:
        read: Those that it only reads: what changes them meanwhile works on copies.
        changed: Those that it changes in place, as ``let_change`` returned them: nobody reads them meanwhile.
    """
    own = [parameter for parameter in read if parameter._lock is not None]
    held = list[threading.RLock]()
    try:
        for parameter in own:
            with parameter.lock:
                parameter._readers += 1
        for parameter in changed:
            parameter.lock.acquire()
            held.append(parameter.lock)
            if parameter._is_lent or parameter._readers:
                parameter.take(data_of(parameter).copy())
            parameter.version += 1
        yield
    finally:
        for lock in held:
            lock.release()
        for parameter in own:
            with parameter.lock:
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
