"""Modules of composite operators rewrite what the table says of them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from opbuild.graph.passes import composite


def test_the_table_has_what_the_modules_rewrite() -> None:
    """Each rewrite of each module is in the table, under this module, and nothing else is."""
    for path in Path(composite.__file__).parent.glob("*.py"):
        import_module(f"{composite.__name__}.{path.stem}" if path.stem != "__init__" else composite.__name__)
    declared = {name: module for module, served in composite._SERVED.items() for name in served}
    found = {op_type: rewrite.__module__.rpartition(".")[2] for (_, op_type), rewrite in composite.REWRITES.items()}
    assert found == declared


def test_an_operator_that_is_not_composite_has_no_rewrite() -> None:
    """A graph of them loads no module."""
    assert not composite.REWRITES.serves("", "Conv")
