"""Modules that tests write and import."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def write_and_import(folder: Path, source: str, name: str) -> ModuleType:
    """Write a module and import it under its name."""
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
