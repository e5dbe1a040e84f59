"""What serves an operator is found by its decorator's text, and loaded when a network first has the operator."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from opbuild.families import catalogue
from opbuild.lowering import implementations
from opbuild.lowering.implementations import IMPLEMENTATIONS, Implementation, NotServedError, ask, serves
from opbuild.platform.records import replace
from support.processes import environment

SAYS = (
    "import re, sys\n"
    "from opbuild.lowering.lower import lower\n"
    "from opbuild.lowering.implementations import implementations\n"
    "def loaded(): return {name for name in sys.modules if re.search(r'families.*lowering|lowering.rules\\.', name)}\n"
    "assert not loaded(), loaded()\n"
    "assert implementations(('', 'Softmax')) and loaded() == {'opbuild.families.softmax.lowering'}, loaded()\n"
    "assert implementations(('', 'Relu')) and 'opbuild.families.elementwise.lowering' in loaded()\n"
    "assert len(implementations(('lowering', 'Convolution'))) > 4 and implementations(('', 'Nothing')) == ()\n"
    "assert not {'opbuild.families.recurrent.lowering', 'opbuild.lowering.rules.conv_product'} & loaded()\n"
)


def test_what_decorators_say_as_text_is_what_they_register() -> None:
    """Each module registers exactly what is found in it without loading it, elementwise operators aside."""
    implementations._declare_new()
    for name in catalogue.names():
        import_module(f"opbuild.families.{name}.lowering")
    IMPLEMENTATIONS.load()  # raises where a module does not keep what it says
    usual = "opbuild.families.elementwise.lowering"
    for path, package, inside in (
        (implementations.rules.__path__[0], "opbuild.lowering.rules", ""),
        (implementations.families.__path__[0], "opbuild.families", "/lowering"),
    ):
        for file, text in implementations._texts(path, inside):
            module = f"{package}.{file.replace('/', '.')}"
            registered = {key for key, each in IMPLEMENTATIONS.items() if module in {e.emit.__module__ for e in each}}
            said, is_all = implementations._declared_operators(text)
            assert said.keys() <= registered, module
            assert is_all == (said.keys() == registered) == (module != usual), module


def test_a_module_is_loaded_when_its_operator_is_asked_for() -> None:
    """Lowering itself loads none, and an operator no more than what may compute it."""
    done = subprocess.run([sys.executable, "-c", SAYS], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Asks:
    """A state of lowering that takes the first way whose flag is set and that serves."""

    target = "cpu"

    def either(self, ways: Iterable[tuple[int, Callable[[], object]]]) -> bool:
        """Return whether one of the ways was taken."""
        return any(flag and emit() is not False for flag, emit in ways)


def asked(monkeypatch: pytest.MonkeyPatch, what: int, **functions: Implementation) -> str:
    """Return the name of the implementation that computes a number, or what is said where none does."""
    found = list[str]()

    def emit(name: str, own: Implementation) -> Callable[..., object]:
        def emitted(_: object, number: int) -> object:
            answer = own.emit(number)
            if answer is not False:
                found.append(name)
            return answer

        return emitted

    each = tuple(replace(own, emit=emit(name, own)) for name, own in functions.items())
    monkeypatch.setitem(IMPLEMENTATIONS, ("lowering", "Made"), each)
    try:
        ask(Asks(), ("lowering", "Made"), what)
    except NotServedError as reason:
        return str(reason)
    return found[0]


def refuse(number: int) -> None:
    """Refuse to compute a number."""
    raise NotServedError(f"{number} is refused")


def test_the_cheapest_that_serves_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs are numbers or depend on what is asked; who serves not here, declines or refuses leaves it to the next."""
    usual, small = Implementation(str), Implementation(str, 0.5, lambda _, number: number < 10)
    growing = Implementation(str, lambda _, number: number / 10)
    assert asked(monkeypatch, 3, usual=usual, small=small) == "small"
    assert asked(monkeypatch, 30, usual=usual, small=small) == "usual"
    assert asked(monkeypatch, 3, usual=usual, growing=growing) == "growing"
    assert asked(monkeypatch, 30, growing=growing, usual=usual) == "usual"
    declines = Implementation(lambda number: number > 10, 0.1)
    assert asked(monkeypatch, 3, usual=usual, declines=declines) == "usual"
    assert asked(monkeypatch, 30, usual=usual, declines=declines) == "declines"
    assert asked(monkeypatch, 3, usual=usual, refuses=Implementation(refuse, 0.1)) == "usual"


def test_flags_that_are_open_are_left_to_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first one on, in order: lowering lets each size take its own."""
    usual = Implementation(str)
    for flag, name in ((0, "usual"), (1, "some")):
        some = Implementation(str, 0.5, lambda *_, flag=flag: np.float32(flag))  # no integer, as symbolic numbers
        assert asked(monkeypatch, 3, usual=usual, some=some) == name


def test_what_nobody_serves_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is that of the last one that was asked."""
    assert asked(monkeypatch, 3, one=Implementation(refuse), other=Implementation(refuse)) == "3 is refused"
    assert asked(monkeypatch, 3, one=Implementation(str, where=lambda *_: 0)) == "no kernel for Made"


def test_what_was_refused_holds_nothing_of_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a collection of cycles a network's memory goes back when it is no longer used."""

    class Held:
        """Something of a build."""

    def refuse(held: Held) -> None:
        raise NotServedError("not this one")

    ways = Implementation(lambda _, held: refuse(held)), Implementation(lambda *_: True, cost=2.0)
    monkeypatch.setattr(implementations, "implementations", lambda *_: ways)
    gc.collect()
    gc.disable()
    try:
        held = Held()
        gone = weakref.ref(held)
        ask(Asks(), ("", "Made"), held)
        del held
        assert gone() is None
    finally:
        gc.enable()


def test_a_function_that_is_registered_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault of a mistaken copy of a decorator is told where it is made."""
    monkeypatch.setattr(
        implementations, "IMPLEMENTATIONS", type(IMPLEMENTATIONS)("implementation", join=implementations._joined)
    )

    def emit() -> None: ...

    serves("lowering.Made")(emit)
    with pytest.raises(ValueError, match=r"emit is registered twice"):
        serves("lowering.Made")(emit)


MODULE = """
from opbuild.lowering.implementations import serves

@serves("made.Made", target={target!r})
def emit(lowering, node): ...
"""


def test_a_module_for_another_target_stands_beside_the_usual_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is found when that target is first asked for; on CPUs nobody looks for it."""
    folder = tmp_path / "made_for_two"
    folder.mkdir()
    for file, text in (
        ("__init__", ""),
        ("lowering", MODULE.format(target="cpu")),
        ("lowering_cuda", MODULE.format(target="cuda")),
    ):
        (folder / f"{file}.py").write_text(text, encoding="utf-8")
    registry = type(IMPLEMENTATIONS)("implementation", join=implementations._joined)
    monkeypatch.setattr(implementations, "IMPLEMENTATIONS", registry)
    monkeypatch.setattr(implementations, "_known", set())
    monkeypatch.setattr(implementations.families, "__path__", [str(tmp_path)])
    names = [
        [each.emit.__module__ for each in implementations.implementations(("made", "Made"), target)]
        for target in ("cpu", "cuda")
    ]
    on_cpu, on_cuda = (f"opbuild.families.made_for_two.lowering{target}" for target in ("", "_cuda"))
    assert names == [[on_cpu], [on_cuda, on_cpu]]
    for name in ("", ".lowering", ".lowering_cuda"):
        monkeypatch.delitem(sys.modules, f"opbuild.families.made_for_two{name}")


def test_what_is_for_another_target_is_asked_there_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device's own stand before those of the CPU beside it, unless these cost less."""
    usual, own, cheap = Implementation(print), Implementation(repr, target="cuda"), Implementation(str, cost=0.5)
    monkeypatch.setitem(IMPLEMENTATIONS, ("lowering", "Made"), (usual, own, cheap))
    assert implementations.implementations(("lowering", "Made")) == (cheap, usual)
    assert implementations.implementations(("lowering", "Made"), "cuda") == (cheap, own, usual)
