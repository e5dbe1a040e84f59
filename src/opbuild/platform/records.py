"""Data classes and named tuples that take little to make: a start loads many that it does not use.

``dataclasses.dataclass`` compiles six functions for a frozen class, one by one, which takes longer than loading the
module that it stands in, and ``collections.namedtuple`` one. Here a class costs a note of its fields: its methods are
made when they are first called, its constructor is compiled when a third instance is made, and the fields are made the
standard ones when somebody asks for them (``dataclasses.fields``, ``asdict``), so that nothing of ``dataclasses`` is
loaded before. Fields are what has an annotation; pseudo-fields (``ClassVar``, ``InitVar``, ``KW_ONLY``) are not known.

``typing.NamedTuple`` compiles the text of each annotation, only to see that it is an expression; type checkers do that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple", "dataclass", "field", "fields_of", "replace"]

_FEW = 2
"""Instances until which a constructor is not compiled: half of the classes of a start make no more."""

_OWN, _ALL = "__own_record_fields__", "__record_fields__"
_LATE = ("__dataclass_fields__", "__dataclass_params__")


class _Missing:
    """Stands for a default that there is not."""


_MISSING = _Missing()


class _Field:
    """The properties of a field; attributes are called as those of ``dataclasses.Field``."""

    __slots__ = ("compare", "default", "default_factory", "hash", "init", "metadata", "repr")

    def __init__(
        self,
        default: Any = _MISSING,
        default_factory: Any = _MISSING,
        init: bool = True,
        repr: bool = True,  # noqa: A002  as dataclasses have it
        hash: bool | None = None,  # noqa: A002
        compare: bool = True,
        metadata: Mapping[Any, Any] | None = None,
    ) -> None:
        self.default = default
        self.default_factory = default_factory
        self.init = init
        self.repr = repr
        self.hash = hash
        self.compare = compare
        self.metadata = MappingProxyType({} if metadata is None else metadata)


if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
    from typing import NamedTuple
else:
    from collections import _tuplegetter

    class _Named(type):
        def __new__(cls, name: str, bases: tuple[type, ...], content: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, content)
            names = tuple(content.get("__annotations__", ()))
            defaults = {each: content.pop(each) for each in names if each in content}
            methods = {
                "__slots__": (),
                "_fields": names,
                "_field_defaults": defaults,
                "__match_args__": names,
                "__new__": _late_new(lambda: made, names, defaults),
                "__repr__": _tuple_repr,
                "__getnewargs__": _tuple_values,
                "__replace__": _tuple_replace,
                "_replace": _tuple_replace,
                "_make": classmethod(_tuple_make),
                "_asdict": _tuple_asdict,
            }
            getters = {each: _tuplegetter(place, "") for place, each in enumerate(names)}
            made = type(name, (tuple,), methods | getters | content)
            return made

    class NamedTuple(metaclass=_Named):
        """Base of a named tuple, as ``typing.NamedTuple``; the class that is made is a tuple and has no other base."""

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True):  # noqa: A002  as the standard one has it
        """Make a class a data class as ``dataclasses.dataclass`` does with the same arguments."""

        def made(cls: type) -> type:
            own = frozenset(cls.__dict__)
            _note_fields(cls)
            methods: dict[str, Any] = {name: _LateFields(cls, name) for name in _LATE}
            methods["__match_args__"] = tuple([name for name, each in fields_of(cls).items() if each.init])
            methods["__init__"] = _late_init(cls, frozen)
            if repr:
                methods["__repr__"] = _late(cls, "__repr__", _repr)
            if eq:
                methods["__eq__"] = _late(cls, "__eq__", _eq)
            if frozen:
                methods |= {"__setattr__": _refuse(cls, "assign to"), "__delattr__": _refuse(cls, "delete")}
            if eq and ("__hash__" not in own or (cls.__dict__["__hash__"] is None and "__eq__" in own)):
                cls.__hash__ = _late(cls, "__hash__", _hash) if frozen else None
            for name, method in methods.items():
                if name not in own:
                    setattr(cls, name, method)
            return cls

        return made if cls is None else made(cls)

    field = _Field

    def replace(one, /, **changes):
        """Return a copy of an object of a data class with some fields changed, as ``dataclasses.replace`` does."""
        fields = fields_of(type(one)).items()
        kept = {name: getattr(one, name) for name, each in fields if each.init and name not in changes}
        return type(one)(**kept, **changes)


def _given(names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return arguments by name; None if they do not fit."""
    if len(args) > len(names) or not kwargs.keys() <= {*names[len(args) :]}:
        return None
    return {**dict(zip(names, args)), **kwargs}  # noqa: B905  fewer may be given


# -- fields ------------------------------------------------------------------------------------------------------------


def fields_of(cls: type) -> dict[str, _Field]:
    """Return the fields of a data class by name, those of its bases first."""
    found: dict[str, _Field] = getattr(cls, _ALL)
    return found


def _note_fields(cls: type) -> None:
    """Note a class's fields; defaults stay as its attributes."""
    own: dict[str, _Field] = {}
    for name in cls.__dict__.get("__annotations__", ()):  # noqa: RUF063  inspect takes long to load
        default = cls.__dict__.get(name, _MISSING)
        if not isinstance(default, _Field):
            own[name] = _Field(default)
            continue
        own[name] = default
        if default.default is not _MISSING:
            setattr(cls, name, default.default)
        else:
            delattr(cls, name)
    every: dict[str, _Field] = {}
    for base in reversed(cls.__mro__[1:]):
        every |= base.__dict__.get(_OWN, {})
    setattr(cls, _OWN, own)
    setattr(cls, _ALL, every | own)


class _LateFields:
    """Stands for the notes of ``dataclasses`` on a class until somebody asks for them."""

    def __init__(self, cls: type, name: str) -> None:
        self._cls, self._name = cls, name

    def __get__(self, instance: object, owner: type) -> Any:
        import dataclasses

        made: dict[str, Any] = {}
        for base in reversed(self._cls.__mro__[1:]):
            made |= getattr(base, _LATE[0], {})
        content: dict[str, Any] = {"__module__": self._cls.__module__, "__annotations__": {}}
        for name, said in self._cls.__dict__[_OWN].items():
            given = {each: getattr(said, each) for each in _Field.__slots__}
            content[name] = dataclasses.field(**{k: v for k, v in given.items() if v is not _MISSING})
            content["__annotations__"][name] = self._cls.__annotations__[name]
        twin: type = dataclasses.dataclass(init=False, repr=False, eq=False)(type(self._cls.__name__, (), content))
        made |= getattr(twin, _LATE[0])
        for name, value in zip(_LATE, (made, getattr(twin, _LATE[1])), strict=True):
            setattr(self._cls, name, value)
        return getattr(self._cls, self._name)


# -- methods of data classes -------------------------------------------------------------------------------------------


def _late(cls: type, name: str, make: Callable[[type], Callable[..., Any]]) -> Callable[..., Any]:
    """Return a method that makes the one that is to be there when it is first called."""

    def late(self: object, *args: Any) -> Any:
        made = make(cls)
        type.__setattr__(cls, name, made)  # it takes this one's place
        return made(self, *args)

    return late


def _late_init(cls: type, frozen: bool) -> Callable[..., None]:
    left = _FEW

    def __init__(self: object, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        nonlocal left
        left -= 1
        if left >= 0 and _fill(self, cls, args, kwargs, object.__setattr__ if frozen else setattr):
            return
        made = _init(cls, frozen)
        if left < 0:
            type.__setattr__(cls, "__init__", made)
        made(self, *args, **kwargs)

    return __init__


def _fill(
    self: object, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any], assign: Callable[[object, str, Any], None]
) -> bool:
    """Set the fields as the constructor does with arguments that fit; return whether they do, else nothing was done."""
    fields = fields_of(cls)
    given = _given([name for name, each in fields.items() if each.init], args, kwargs)
    if given is None:
        return False
    for name, each in fields.items():
        if name in given:
            continue
        if each.default_factory is not _MISSING:
            given[name] = each.default_factory()
        elif each.init:
            if each.default is _MISSING:
                return False
            given[name] = each.default
    for name in fields:
        if name in given:
            assign(self, name, given[name])
    if hasattr(cls, "__post_init__"):
        self.__post_init__()  # type: ignore[attr-defined]
    return True


def _init(cls: type, frozen: bool) -> Callable[..., None]:
    """Compile the constructor, with the fields as its arguments."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": _MISSING}
    arguments, body = ["self"], list[str]()
    for name, each in fields_of(cls).items():
        has_factory = each.default_factory is not _MISSING
        value = name
        if has_factory:
            known[f"_make_{name}"] = each.default_factory
            value = f"_make_{name}() if {name} is _missing else {name}" if each.init else f"_make_{name}()"
        elif not each.init:
            continue
        if has_factory and each.init:
            arguments.append(f"{name}=_missing")
        elif each.init:
            known[f"_default_{name}"] = each.default
            arguments.append(name if each.default is _MISSING else f"{name}=_default_{name}")
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(arguments)}):\n " + "\n ".join(body or ["pass"]), known)  # noqa: S102  fields' names
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _values(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    """Return a getter of some of an object's attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _repr(cls: type) -> Callable[[object], str]:
    from reprlib import recursive_repr

    names = [name for name, each in fields_of(cls).items() if each.repr]

    @recursive_repr()
    def __repr__(self: object) -> str:  # noqa: N807
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _eq(cls: type) -> Callable[[object, object], bool]:
    values = _values([name for name, each in fields_of(cls).items() if each.compare])

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return __eq__


def _hash(cls: type) -> Callable[[object], int]:
    fields = fields_of(cls).items()
    values = _values([name for name, each in fields if (each.compare if each.hash is None else each.hash)])

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _refuse(cls: type, what: str) -> Callable[..., None]:
    def refuse(self: object, name: str, *value: object) -> None:
        if type(self) is cls or name in fields_of(cls):
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot {what} field {name!r}")
        getattr(super(cls, self), "__setattr__" if value else "__delattr__")(name, *value)

    return refuse


# -- methods of named tuples -------------------------------------------------------------------------------------------


def _late_new(owner: Callable[[], type], names: tuple[str, ...], defaults: dict[str, Any]) -> Callable[..., Any]:
    left = _FEW

    def __new__(cls: type, /, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        nonlocal left
        left -= 1
        given = _given(names, args, kwargs) if left >= 0 else None
        if given is not None and len(whole := {**defaults, **given}) == len(names):
            return tuple.__new__(cls, [whole[name] for name in names])
        made = _new(owner(), names, defaults)
        if left < 0:
            type.__setattr__(owner(), "__new__", staticmethod(made))
        return made(cls, *args, **kwargs)

    return __new__


def _new(cls: type, names: tuple[str, ...], defaults: dict[str, Any]) -> Callable[..., Any]:
    """Compile the constructor of a named tuple."""
    listed = "".join(f"{name}, " for name in names)
    known: dict[str, Any] = {"_make": tuple.__new__}
    exec(f"def __new__(_cls, {listed}): return _make(_cls, ({listed}))", known)  # noqa: S102  fields' names
    made: Callable[..., Any] = known["__new__"]
    made.__qualname__ = f"{cls.__qualname__}.__new__"
    made.__defaults__ = tuple(defaults.values())
    made.__annotations__ = cls.__annotations__
    return made


def _tuple_make(cls: type, values: Any) -> Any:
    made: Any = tuple.__new__(cls, values)
    wanted = len(cls._fields)  # type: ignore[attr-defined]
    if len(made) != wanted:
        raise TypeError(f"Expected {wanted} arguments, got {len(made)}")
    return made


def _tuple_replace(self: Any, /, **changes: Any) -> Any:
    made = self._make(map(changes.pop, self._fields, self))
    if changes:
        raise ValueError(f"Got unexpected field names: {list(changes)!r}")
    return made


def _tuple_repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self))})"  # noqa: B905


def _tuple_values(self: Any) -> tuple[Any, ...]:
    return tuple(self)


def _tuple_asdict(self: Any) -> dict[str, Any]:
    return dict(zip(self._fields, self))  # noqa: B905
