"""Finalizers: steps that are taken once an object is gone, without a line of Python.

The handler of a signal runs between two lines of Python. In a destructor, or in the callback of a weak reference, what
it raises is dropped: after a ``KeyboardInterrupt`` there the program would go on. So nothing here calls Python's code.
"""

from __future__ import annotations

import atexit
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

Step = Callable[[], object]


class Finalizer(weakref.ref[Any]):
    """The steps that are taken, in order and once, when an object is gone; none at the end of the program.

    Args:
        owner: The object.
        steps: Functions of C, or ``functools.partial`` of them, that raise nothing.

    Attributes:
        run: Takes the steps that were not taken.
    """

    __slots__ = ("run",)
    run: Step

    def __new__(cls, owner: object, *_: Step) -> Finalizer:
        """Return a weak reference whose callback takes the steps."""
        return super().__new__(cls, owner, _RUN)

    def __init__(self, owner: object, *steps: Step) -> None:
        self.run = partial(deque, map(_CALL, (*steps, partial(_PENDING.pop, id(self), None))), 0)
        _PENDING[id(self)] = self

    def detach(self) -> None:
        """Leave out the steps that were not taken."""
        self.run = tuple
        _PENDING.pop(id(self), None)


_RUN, _CALL = methodcaller("run"), methodcaller("__call__")

_PENDING: dict[int, Finalizer] = {}
"""Those whose objects live: a weak reference that is gone itself calls nothing."""


def _leave_out() -> None:
    """Give nothing back any more: other threads may still use it."""
    for each in [*_PENDING.values()]:
        each.detach()


atexit.register(_leave_out)


class WeakValues(Generic[K, V]):
    """A dictionary of values that it does not keep; those of ``weakref`` forget one in Python."""

    def __init__(self) -> None:
        self._references: dict[K, Finalizer] = {}

    def __setitem__(self, key: K, value: V) -> None:
        """Have a value, in the place of the one that the key had."""
        if key in self._references:
            self._references[key].detach()
        self._references[key] = Finalizer(value, partial(self._references.pop, key, None))

    def get(self, key: K) -> V | None:
        """Return the value of a key; None: there is none."""
        reference = self._references.get(key)
        return None if reference is None else reference()

    def items(self) -> list[tuple[K, V]]:
        """Return the keys that have values, with these."""
        pairs = ((key, reference()) for key, reference in [*self._references.items()])
        return [(key, value) for key, value in pairs if value is not None]
