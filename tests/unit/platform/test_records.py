"""Data classes and named tuples that take little to make behave as the standard ones do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
import typing
from collections.abc import Callable
from typing import Any

import pytest

from opbuild.platform import records
from opbuild.platform.locks import lazy_property
from opbuild.platform.records import NamedTuple, dataclass

Decorator = Callable[[type], type]
Field = Callable[..., Any]


def _plain(decorate: Decorator, field: Field) -> type:
    @decorate
    class Example:
        """An example."""

        first: int
        second: str = "b"

        @lazy_property
        def third(self) -> object:
            """Return the value that is kept in the object."""
            return [self.first]

    return Example


def _many(decorate: Decorator, field: Field) -> type:
    @decorate
    class Example:
        """An example of all that a field can be."""

        first: int
        made: list[int] = field(default_factory=list)
        hidden: int = field(default=1, repr=False)
        ignored: int = field(default=2, compare=False)
        unhashed: Any = field(default=3, hash=False)

    return Example


def _following(decorate: Decorator, field: Field) -> type:
    @decorate
    class Base:
        """An example."""

        first: int

    @decorate
    class Example(Base):
        """An example that follows another, and does something when it is made."""

        second: int = 4
        kept: dict[str, int] = field(default_factory=dict, init=False)

        def __post_init__(self) -> None:
            self.kept["first"] = self.first

    return Example


def _own(decorate: Decorator, field: Field) -> type:
    @decorate
    class Example:
        """An example with methods of its own, which stay."""

        first: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Example) and self.first % 2 == other.first % 2

        def __hash__(self) -> int:
            return self.first % 2

    return Example


def _compared(decorate: Decorator, field: Field) -> type:
    @decorate
    class Example:  # noqa: PLW1641  what it can be digested by is asked
        """An example with a comparison of its own alone."""

        first: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Example) and self.first % 2 == other.first % 2

    return Example


def _empty(decorate: Decorator, field: Field) -> type:
    @decorate
    class Example:
        """An example without fields."""

    return Example


FORMS = (_plain, _many, _following, _own, _compared, _empty)
OPTIONS = [dict(zip(("frozen", "eq", "repr"), each, strict=True)) for each in (
    (False, True, True), (True, True, True), (True, False, True), (False, False, True), (True, True, False),
)]  # fmt: skip
CALLS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((), {}), ((1,), {}), ((3,), {}), ((1, 5), {}), ((), {"first": 1}), ((1,), {"first": 1}), ((), {"unknown": 1}),
    ((1, [2]), {}), ((1, [], 7), {}), ((1, [], 1, 7), {}), ((1, [], 1, 2, 7), {}), (((1, 2), {}), {}), ((1, 2, 3), {}),
    ((float("nan"),), {}),
)  # fmt: skip


def _said(work: Callable[[], object]) -> object:
    try:
        return work()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


def _set(made: Any, name: str) -> object:
    setattr(made, name, 9)
    return getattr(made, name)


def _delete(made: Any, name: str) -> object:
    delattr(made, name)
    return hasattr(made, name)


def _behaviour(of: type, replace: Callable[..., Any]) -> list[object]:
    said: list[object] = [[field.name for field in dataclasses.fields(of)], of.__match_args__]  # type: ignore[attr-defined]
    objects: list[Any] = []
    for args, kwargs in CALLS:
        try:
            objects.append(of(*copy.deepcopy(args), **kwargs))
        except TypeError as error:
            said.append(str(error))
    for one in objects:
        said.append("<object>" if type(one).__repr__ is object.__repr__ else repr(one))
        said += [_said(lambda one=one: hash(one) if type(one).__hash__ is not object.__hash__ else 0)]
        said += [one == other for other in objects] + [one != other for other in objects] + [one == 1]
        said += [vars(copy.copy(one)) == vars(one), copy.deepcopy(one) == one]
        said.append(_said(lambda one=one: vars(dataclasses.replace(one, first=8))))
        said.append(_said(lambda one=one: vars(replace(one, first=8))))
        said.append(getattr(one, "third", None))
        changed = copy.copy(one)
        said += [_said(lambda one=changed, name=name: _set(one, name)) for name in ("first", "other", "third")]
        said += [_said(lambda one=changed, name=name: _delete(one, name)) for name in ("first", "nothing")]
    return said


@pytest.mark.parametrize("few", [0, 3, 1000])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_a_record_does_all_that_a_standard_data_class_does(
    form: Callable[[Decorator, Field], type],
    options: dict[str, bool],
    few: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls, errors, comparison, digests, texts, copies and what a frozen one refuses are the same.

    So they are before the constructor is compiled, when it is, and after that.
    """
    monkeypatch.setattr(records, "_FEW", few)
    ours = form(dataclass(**options), records.field)
    standard = form(dataclasses.dataclass(**options), dataclasses.field)
    assert _behaviour(ours, records.replace) == _behaviour(standard, dataclasses.replace)


@pytest.mark.parametrize("decorate", [dataclass(frozen=True), dataclasses.dataclass(frozen=True)])
def test_an_object_that_no_constructor_made_is_one_of_its_class(decorate: Callable[[type], type]) -> None:
    """Unpickling and copying call no constructor; comparison, digest, text and freezing hold all the same."""
    cls = _plain(decorate, dataclasses.field)
    one, other = object.__new__(cls), object.__new__(cls)
    for each in (one, other):
        vars(each).update(first=1, second="c")
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one).endswith("Example(first=1, second='c')")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.first = 2


def test_a_class_within_a_record_of_itself_has_a_text() -> None:
    """A record that holds itself is shown once, as a standard one is."""

    @dataclass
    class Ring:
        """It holds itself."""

        inner: list[Any]

    ring = Ring([])
    ring.inner.append(ring)
    assert repr(ring).endswith("Ring(inner=[...])")


class _Standard(typing.NamedTuple):
    """A named tuple."""

    first: int
    second: str = "b"

    @property
    def both(self) -> str:
        """Return the fields as text."""
        return f"{self.first}{self.second}"


class _Light(NamedTuple):
    """A named tuple."""

    first: int
    second: str = "b"

    @property
    def both(self) -> str:
        """Return the fields as text."""
        return f"{self.first}{self.second}"


def test_named_tuples_are_as_the_standard_ones() -> None:
    """Fields, defaults, documentation, properties, bases and what is pickled do not tell who made the class."""
    for cls in (_Standard, _Light):
        made = cls(1)
        assert made == (1, "b") == cls(first=1)
        assert made.both == "1b"
        assert made._replace(second="c") == (1, "c")
        assert repr(made) == f"{cls.__name__}(first=1, second='b')"
        assert pickle.loads(pickle.dumps(made)) == made == copy.copy(made)
        assert type(pickle.loads(pickle.dumps(made))) is cls
        assert (cls.__doc__, cls.__module__, cls.__bases__) == ("A named tuple.", __name__, (tuple,))
        assert (typing.get_type_hints(cls), cls._field_defaults) == ({"first": int, "second": str}, {"second": "b"})
        assert (cls.__match_args__, vars(made) if hasattr(made, "__dict__") else {}) == (("first", "second"), {})
        with pytest.raises(TypeError, match="first"):
            cls()


COMPILES = """
import collections, sys
compiled = collections.Counter()
sys.addaudithook(lambda event, arguments: event == "compile" and compiled.update([arguments[1]]))
from opbuild.platform.records import NamedTuple, dataclass
before = compiled.total()
class Row(NamedTuple):
    first: "int"
    second: "dict[str, int]" = {}
@dataclass(frozen=True)
class Note:
    first: "int"
    second: "dict[str, int]" = None
for made in Row, Note:
    assert made(1) == made(first=1)
print(compiled.total() - before, "dataclasses" in sys.modules)
"""


def test_few_objects_compile_nothing_and_load_no_dataclasses() -> None:
    """Half of what a start loads makes no object, or two; the standard classes compile what most do not use."""
    done = subprocess.run([sys.executable, "-c", COMPILES], capture_output=True, text=True, check=True)
    assert done.stdout == "0 False\n"
