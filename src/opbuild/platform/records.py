"""Data classes and named tuples that take little to make: a start loads many that it does not use.

``dataclasses.dataclass`` compiles six functions for a frozen class, one by one, which takes longer than loading the
module that it stands in. Here only ``__init__`` is compiled, when a class makes its third instance; the others need no
code of their own. Fields are the standard ones, so ``field``, ``fields`` and ``replace`` serve as usual.

``typing.NamedTuple`` compiles the text of each annotation, only to see that it is an expression; type checkers do that.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple", "dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
    from typing import NamedTuple
else:

    class _Named(type):
        def __new__(cls, name: str, bases: tuple[type, ...], content: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, content)
            fields = content.pop("__annotations__", {})
            defaults = [content.pop(each) for each in fields if each in content]
            made = namedtuple(name, fields, defaults=defaults, module=content.pop("__module__"))
            made.__annotations__ = made.__new__.__annotations__ = fields
            for each, value in content.items():
                setattr(made, each, value)
            return made

    class NamedTuple(metaclass=_Named):
        """Base of a named tuple, as ``typing.NamedTuple``; the class that is made is a tuple and has no other base."""

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True):  # noqa: A002  as the standard one has it
        """Make a class a data class as ``dataclasses.dataclass`` does with the same arguments."""

        def made(cls: type) -> type:
            own = frozenset(cls.__dict__)
            dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
            methods: dict[str, Any] = {"__init__": _late_init(cls, frozen)}
            if repr:
                methods["__repr__"] = _repr(cls)
            if eq:
                methods["__eq__"] = _eq(cls)
            if frozen:
                methods |= {"__setattr__": _refuse(cls, "assign to"), "__delattr__": _refuse(cls, "delete")}
            if eq and ("__hash__" not in own or (cls.__dict__["__hash__"] is None and "__eq__" in own)):
                cls.__hash__ = _hash(cls) if frozen else None
            for name, method in methods.items():
                if name not in own:
                    setattr(cls, name, method)
            return cls

        return made if cls is None else made(cls)


_FEW = 2
"""Instances until which a constructor is not compiled: half of the classes of a start make no more."""


def _late_init(cls: type, frozen: bool) -> Callable[..., None]:
    left = _FEW

    def __init__(self: object, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        nonlocal left
        left -= 1
        if left >= 0 and _fill(self, cls, args, kwargs, object.__setattr__ if frozen else setattr):
            return
        made = _init(cls, frozen)
        if left < 0:
            type.__setattr__(cls, "__init__", made)  # it takes this one's place
        made(self, *args, **kwargs)

    return __init__


def _fill(
    self: object, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any], assign: Callable[[object, str, Any], None]
) -> bool:
    """Do what the constructor does with arguments that fit; return whether they do, else nothing was done."""
    fields = dataclasses.fields(cls)
    names = [field.name for field in fields if field.init]
    given = dict(zip(names, args))  # noqa: B905  fewer may be given
    if len(args) > len(names) or not kwargs.keys() <= {*names[len(args) :]}:
        return False
    given |= kwargs
    for field in fields:
        if field.name in given:
            continue
        if field.default_factory is not dataclasses.MISSING:
            given[field.name] = field.default_factory()
        elif field.init:
            if field.default is dataclasses.MISSING:
                return False
            given[field.name] = field.default
    for field in fields:
        if field.name in given:
            assign(self, field.name, given[field.name])
    if hasattr(cls, "__post_init__"):
        self.__post_init__()  # type: ignore[attr-defined]
    return True


def _init(cls: type, frozen: bool) -> Callable[..., None]:
    """Compile the constructor, with the fields as its arguments."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    arguments, body = ["self"], list[str]()
    for field in dataclasses.fields(cls):
        name = field.name
        has_factory = field.default_factory is not dataclasses.MISSING
        value = name
        if has_factory:
            known[f"_make_{name}"] = field.default_factory
            value = f"_make_{name}() if {name} is _missing else {name}" if field.init else f"_make_{name}()"
        elif not field.init:
            continue
        if has_factory and field.init:
            arguments.append(f"{name}=_missing")
        elif field.init:
            known[f"_default_{name}"] = field.default
            arguments.append(name if field.default is dataclasses.MISSING else f"{name}=_default_{name}")
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(arguments)}):\n " + "\n ".join(body or ["pass"]), known)  # noqa: S102  fields' names
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _values(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    """Return what makes a tuple of some of an object's attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _repr(cls: type) -> Callable[[object], str]:
    names = [field.name for field in dataclasses.fields(cls) if field.repr]

    @recursive_repr()
    def __repr__(self: object) -> str:  # noqa: N807
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _eq(cls: type) -> Callable[[object, object], bool]:
    values = _values([field.name for field in dataclasses.fields(cls) if field.compare])

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return __eq__


def _hash(cls: type) -> Callable[[object], int]:
    fields = dataclasses.fields(cls)
    values = _values([each.name for each in fields if (each.compare if each.hash is None else each.hash)])

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _refuse(cls: type, what: str) -> Callable[..., None]:
    names = frozenset(field.name for field in dataclasses.fields(cls))

    def refuse(self: object, name: str, *value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")
        getattr(super(cls, self), "__setattr__" if value else "__delattr__")(name, *value)

    return refuse
