"""Let a process of a test take kept objects in its builds: Python loads this first where ``PYTHONPATH`` has it.

Nothing else of such a process changes: the compiler that its servers load becomes another one as soon as the driver is
imported, and what does not build imports neither.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

DRIVER = "opbuild.backend.halide.driver"


class _Waiting:
    """Finds the driver, once."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec that loads the driver and changes what it names."""
        spec = PathFinder.find_spec(name, path, target) if name == DRIVER else None
        loader: Any = spec and spec.loader
        if loader is not None:
            sys.meta_path.remove(_Waiting)
            load = loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                module.HalideCompiler.import_string = "support.kept_kernels:KeptCompiler"

            loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Waiting)
