"""From a descriptor to an object file, by the modules of its family: what of the driver decides an object's bytes.

This file is in the key of every operator; what decides nothing about objects stays in ``driver``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.kernel.level import Level
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc

NO_CHECKS = ("no_runtime", "no_asserts", "no_bounds_query")
"""Shapes are checked once, when a signature is bound; without these features compiling takes 2.5 times as long."""

SSE4A = re.compile(rb"[\x66\xf2][\x40-\x4f]?\x0f[\x78\x79]|[\xf2\xf3][\x40-\x4f]?\x0f\x2b")
"""EXTRQ, INSERTQ, MOVNTSS and MOVNTSD, which Zen 4 has and Intel's processors lack: code for Zen 4, by which Halide
knows VNNI, may hold them. Where it does, or where the bytes of another instruction look so, a kernel goes without."""


def emit_operator(desc: OpDesc, symbol: str, level: Level, modules: tuple[str, str], path: Path) -> None:
    """Write an operator's object.

    Args:
        desc: The operator.
        symbol: The kernel's symbol.
        level: What to compile for.
        modules: The modules that define and that schedule its family.
        path: The object file.
    """
    compute, schedule = modules
    definition = import_module(compute).define(desc)
    import_module(schedule).schedule(definition, desc, Machine.of(level))
    outputs: list[Any] = definition.outputs
    pipeline = outputs[0] if len(outputs) == 1 else hl.Pipeline(outputs)
    files, dots = {hl.OutputFileType.object: str(path)}, dot_features(definition, level)
    pipeline.compile_to(files, definition.arguments, symbol, halide_target(level, (*NO_CHECKS, *dots)))
    if dots and SSE4A.search(path.read_bytes()):
        pipeline.compile_to(files, definition.arguments, symbol, halide_target(level, NO_CHECKS))


def dot_features(definition: Definition, level: Level) -> tuple[str, ...]:
    """Return the features beyond the level's own with which a kernel is compiled."""
    return level.dots if definition.dots else ()


def emit_runtime(level: Level, path: Path) -> None:
    """Write the object of the runtime library."""
    hl.compile_standalone_runtime(str(path), halide_target(level))


def halide_target(level: Level, features: Iterable[str] = ()) -> hl.Target:
    """Return a level as Halide knows it, and more of Halide's features."""
    return hl.Target("-".join((level.triple, *level.features, *features)))
