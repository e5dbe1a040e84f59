"""Modules of composite operators are loaded with the operators that the table says they rewrite."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from opbuild.graph.passes import composite, decompose


def test_the_table_has_what_the_modules_rewrite() -> None:
    """Each rewrite of each module is in the table, under this module, and nothing else is."""
    folder = Path(composite.__file__).parent
    found = {}
    for path in folder.glob("*.py"):
        module = import_module(f"{composite.__name__}.{path.stem}" if path.stem != "__init__" else composite.__name__)
        found |= dict.fromkeys(getattr(module, "REWRITES", ()), path.stem)
    assert found == composite.MODULES
    assert found.keys().isdisjoint(decompose.REWRITES)


def test_a_rewrite_is_found_by_its_operator() -> None:
    """Those of modules, those of the pass itself, and none for an operator that is not composite."""
    assert decompose.find_rewrite("Einsum") is import_module(f"{composite.__name__}.einsum").REWRITES["Einsum"]
    assert decompose.find_rewrite("Sum") is decompose.REWRITES["Sum"]
    assert decompose.find_rewrite("Conv") is None
