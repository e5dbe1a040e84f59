"""What serves an operator is found by its decorator's text, and loaded when a network first has the operator."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from opbuild.families import catalogue
from opbuild.lowering import implementations
from opbuild.lowering.implementations import IMPLEMENTATIONS, Implementation, serves
from support.processes import environment

SAYS = (
    "import sys\n"
    "from opbuild.lowering.lower import lower\n"
    "from opbuild.lowering.implementations import implementations\n"
    "def loaded(): return {name for name in sys.modules if 'families.' in name and 'lowering' in name or 'lowering.rules.' in name}\n"
    "assert not loaded(), loaded()\n"
    "assert implementations(('', 'Softmax')) and loaded() == {'opbuild.families.softmax.lowering'}, loaded()\n"
    "assert implementations(('', 'Relu')) and 'opbuild.families.elementwise.lowering' in loaded()\n"
    "assert len(implementations(('lowering', 'Convolution'))) > 4 and implementations(('', 'Nothing')) == ()\n"
    "assert not {'opbuild.families.recurrent.lowering', 'opbuild.lowering.rules.conv_product'} & loaded()\n"
)


def test_what_decorators_say_as_text_is_what_they_register() -> None:
    """Each module registers exactly what is found in it without loading it, elementwise operators aside."""
    implementations._look_round()
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
            said, is_all = implementations._said(text)
            assert said.keys() <= registered, module
            assert is_all == (said.keys() == registered) == (module != usual), module


def test_a_module_is_loaded_when_its_operator_is_asked_for() -> None:
    """Lowering itself loads none, and an operator no more than what may compute it."""
    done = subprocess.run([sys.executable, "-c", SAYS], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_cheapest_implementation_is_first() -> None:
    """By cost, and of equal ones in the order in which they were registered."""
    found = implementations.implementations(("lowering", "Convolution"))
    assert [each.cost for each in found] == sorted(each.cost for each in found)


def test_a_function_that_is_registered_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a mistaken copy of a decorator would do is told where it is made."""
    monkeypatch.setattr(
        implementations, "IMPLEMENTATIONS", type(IMPLEMENTATIONS)("implementation", join=implementations._joined)
    )

    def emit() -> None: ...

    serves("lowering.Made")(emit)
    with pytest.raises(ValueError, match=r"emit is registered twice"):
        serves("lowering.Made")(emit)


def test_what_is_for_another_target_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Implementations for several kinds of machines stand side by side."""
    both = Implementation(print), Implementation(repr, target="cuda")
    monkeypatch.setitem(IMPLEMENTATIONS, ("lowering", "Made"), both)
    assert implementations.implementations(("lowering", "Made")) == both[:1]
    assert implementations.implementations(("lowering", "Made"), "cuda") == both[1:]
