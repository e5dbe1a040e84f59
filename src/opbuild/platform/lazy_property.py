"""Attributes that are made when they are first asked for, in processes that fork while other threads work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy_property(Generic[T]):  # noqa: N801  used as a decorator, as ``functools.cached_property`` is
    """``functools.cached_property`` without a lock: below Python 3.12 that holds one while the attribute is made.

    A process that another thread forks meanwhile would wait for that lock for ever. Threads that come at once may
    each make the attribute; all get the same one.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = ""
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> lazy_property[T] | T:
        if instance is None:
            return self
        made: T = instance.__dict__.setdefault(self._name, self._make(instance))
        return made
