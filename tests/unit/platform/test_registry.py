"""A registry loads the module that serves an operator when it is asked for, and says what is registered wrongly."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from opbuild.platform.registry import Registry
from support.lagging import LaggingLock
from support.together import run_together

Write = Callable[[str, str], None]
REGISTRY: Registry[str] = Registry("rule")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry[str]:
    """Return the registry that the modules of these tests fill; it knows none of them."""
    made: Registry[str] = Registry("rule", "registered")
    monkeypatch.setattr(sys.modules[__name__], "REGISTRY", made)
    return made


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Give a function that writes a module of a package on the path."""
    package = tmp_path / "registered"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    before = {*sys.modules}

    def write(name: str, body: str) -> None:
        (package / f"{name}.py").write_text(f"from {__name__} import REGISTRY\n{body}\n")

    yield write
    for name in {*sys.modules} - before:
        if name.partition(".")[0] == "registered":
            del sys.modules[name]


def is_loaded(name: str) -> bool:
    """Return whether a module of the package is loaded."""
    return f"registered.{name}" in sys.modules


def test_what_is_decorated_serves_its_operators() -> None:
    """A decorator registers a function for several operators, of one domain each time."""
    registry: Registry[Callable[[], int]] = Registry("rule")

    @registry.register("Add", "Sub")
    @registry.register("Add", domain="own")
    def rule() -> int:
        return 3

    assert rule() == 3
    assert registry["", "Add"] is registry["", "Sub"] is registry["own", "Add"] is rule
    assert registry.get(("own", "Sub")) is None
    assert ("", "Add") in registry
    assert ("own", "Sub") not in registry
    assert {*registry} == {("", "Add"), ("", "Sub"), ("own", "Add")}


def test_a_table_registers_a_value_for_each_operator_of_its_keys() -> None:
    """Keys are types of operators with blanks between."""
    registry: Registry[str] = Registry("rule")
    registry.register_all({"Add Sub": "sums", "Mul": "products"}, "own")
    assert {*registry.items()} == {(("own", "Add"), "sums"), (("own", "Sub"), "sums"), (("own", "Mul"), "products")}


def test_only_the_module_that_declares_an_operator_is_loaded(registry: Registry[str], write: Write) -> None:
    """A look-up loads the module that is said to serve an operator; to iterate loads all."""
    write("sums", "REGISTRY.register('Add', 'Sub')('sums')")
    write("products", "REGISTRY.register('Mul', domain='own')('products')")
    registry.declare("sums", {"": ("Add", "Sub")})
    registry.declare("registered.products", {"own": ("Mul",)})
    assert registry.serves("own", "Mul")
    assert registry.get(("", "Div")) is None
    assert not is_loaded("products")
    assert registry["own", "Mul"] == "products"
    assert not is_loaded("sums")
    assert len(registry) == 3
    assert is_loaded("sums")


def test_modules_that_declare_nothing_are_loaded_until_one_serves(registry: Registry[str], write: Write) -> None:
    """Modules of unknown contents are loaded in order, no more than are needed."""
    for name in ("one", "two", "three"):
        write(name, f"REGISTRY.register('{name.title()}')('{name}')")
    others: Registry[str] = Registry("rule", "registered", others=("one", "two", "three"))
    sys.modules[__name__].REGISTRY = others  # type: ignore[attr-defined]
    assert others["", "Two"] == "two"
    assert not is_loaded("three")
    assert others.get(("", "Four")) is None
    assert is_loaded("three")


def test_two_that_serve_one_operator_are_refused() -> None:
    """The error names the operator and what is registered; the first one stays."""
    registry: Registry[str] = Registry("rule")
    registry.register("Add", domain="own")("first")
    with pytest.raises(ValueError, match=r"^own\.Add has two rules"):
        registry.register("Add", domain="own")("second")
    assert registry["own", "Add"] == "first"


def test_two_that_serve_one_operator_are_joined_where_that_is_wanted(registry: Registry[str], write: Write) -> None:
    """With a function that joins them, all modules that declare an operator are loaded for it."""
    joined: Registry[str] = Registry("rule", "registered", join=lambda one, other: f"{one}, {other}")
    sys.modules[__name__].REGISTRY = joined  # type: ignore[attr-defined]
    for name in ("sums", "more"):
        write(name, f"REGISTRY.register('Add')('{name}')")
        joined.declare(name, {"": ("Add",)})
    assert joined["", "Add"] == "sums, more"


def test_a_module_that_does_not_serve_what_it_declares_is_named(registry: Registry[str], write: Write) -> None:
    """A declaration that the module does not keep is an error, not an operator without a rule."""
    write("empty", "")
    registry.declare("empty", {"": ("Add",)})
    with pytest.raises(LookupError, match=r"^registered\.empty registers no rule of Add, which it is said to serve"):
        registry.get(("", "Add"))


def test_what_a_user_sets_replaces_what_a_module_registers(registry: Registry[str], write: Write) -> None:
    """To set and to delete takes the place of a module that was not loaded yet, too."""
    write("sums", "REGISTRY.register('Add')('sums')")
    registry.declare("sums", {"": ("Add",)})
    registry["", "Add"] = "mine"
    assert registry["", "Add"] == "mine"
    del registry["", "Add"]
    assert ("", "Add") not in registry


def test_modules_that_threads_load_at_once_all_serve() -> None:
    """Each adds its own to what serves an operator: none takes the place of another's."""

    def join(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
        time.sleep(0.005)
        return (*one, *other)

    registry: Registry[tuple[int, ...]] = Registry("rule", join=join)
    assert run_together(lambda number: registry.register("Add")((number,)) and None, 5) == []
    assert sorted(registry["", "Add"]) == [0, 1, 2, 3, 4]


def test_a_module_that_is_declared_while_others_are_loaded_comes_next(registry: Registry[str], write: Write) -> None:
    """A thread that needs another target's modules declares them at any time, also when all seem to be loaded."""
    write("one", 'REGISTRY.register("Add")("one")')
    write("two", 'REGISTRY.register("Mul")("two")')
    registry.declare("one", {"": ["Add"]})

    def declared() -> None:
        registry._lock = threading.RLock()
        registry.declare("two", {"": ["Add"]})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opbuild.platform.registry.import_module", lambda name: (import_module(name), lag()))
        lag = lambda: setattr(registry, "_lock", LaggingLock(lag=declared))  # noqa: E731  behind the last module
        assert registry["", "Add"] == "one"
    assert registry["", "Add"] == "one"
    assert is_loaded("two")
