"""The rules of lowering are loaded when a network first has one of their operators."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

from opbuild.lowering import rules
from opbuild.lowering.context import RULES
from opbuild.lowering.lower import find_rule
from support.processes import environment


def test_each_rule_is_listed_with_the_module_that_has_it() -> None:
    """Nothing is found that its module does not register, and no module registers what is not found."""
    for module in iter_modules(rules.__path__):
        import_module(f"{rules.__name__}.{module.name}")
    usual = "elementwise"
    registered = {key: function.__module__.rpartition(".")[2] for key, function in RULES.items()}
    assert {key: module for key, module in registered.items() if module != usual} == rules.MODULES
    assert all(find_rule(*key) is function for key, function in RULES.items())


def test_a_rule_is_loaded_when_it_is_asked_for() -> None:
    """Lowering itself loads none; what no module is listed for may be elementwise."""
    program = (
        "import sys\n"
        "from opbuild.lowering.lower import find_rule\n"
        "before = {name for name in sys.modules if name.startswith('opbuild.lowering.rules.')}\n"
        "assert not before, before\n"
        "assert find_rule('', 'Relu') and 'opbuild.lowering.rules.elementwise' in sys.modules\n"
        "assert find_rule('', 'Conv') and find_rule('', 'Nothing') is None\n"
        "assert 'opbuild.lowering.rules.conv' in sys.modules\n"
        "assert 'opbuild.lowering.rules.recurrent' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
