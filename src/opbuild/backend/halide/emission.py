"""From a descriptor to an object file, by the modules of its family: what of the driver decides an object's bytes.

This file is in the key of every operator; what decides nothing about objects stays in ``driver``.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import halide as hl

from opbuild.kernel.machine import machine_of
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.target import Target

NO_CHECKS = ("no_runtime", "no_asserts", "no_bounds_query")
"""Shapes are checked once, when a signature is bound; without these features compiling takes 2.5 times as long."""


def emit_operator(desc: OpDesc, symbol: str, target: Target, modules: tuple[str, str], path: Path) -> None:
    """Write an operator's object.

    Args:
        desc: The operator.
        symbol: The kernel's symbol.
        target: The machine to compile for.
        modules: The modules that define and that schedule its family.
        path: The object file.
    """
    compute, schedule = modules
    definition = import_module(compute).define(desc)
    import_module(schedule).schedule(definition, desc, machine_of(target))
    features = "-".join((str(target), *NO_CHECKS))
    outputs: list[Any] = definition.outputs
    pipeline = outputs[0] if len(outputs) == 1 else hl.Pipeline(outputs)
    pipeline.compile_to({hl.OutputFileType.object: str(path)}, definition.arguments, symbol, hl.Target(features))


def emit_runtime(target: Target, path: Path) -> None:
    """Write the object of the runtime library."""
    hl.compile_standalone_runtime(str(path), hl.Target(str(target)))
