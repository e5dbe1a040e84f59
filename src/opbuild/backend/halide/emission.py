"""The pipeline of an operator as Halide gets it, its digest, and the object that it is compiled to.

A family's definition and schedule, run for a descriptor, make a pipeline. The pipeline, what was set on its parameters,
the order of its arguments, the targets and what this file does with them decide every byte of the object besides the
symbol; how the family's sources spell that decides nothing. So equal digests mean equal objects, of one compiler under
one symbol (``docs/design/identity.md``).

What of it lies where:

* ``hl.serialize_pipeline`` has functions, schedules, constants and the names of parameters;
* it leaves out what was set on parameters, of outputs too (least values, extents, strides, alignment, estimates):
  ``_described`` has that, by the methods of ``hl.Parameter``;
* the targets have the level's features, the kernel's own (``dots``) and those of ``NO_CHECKS``;
* ``CODE`` stands for the rest: an edit of this file that is no comment is another digest of every operator.

This file is in the sources of every operator; what decides nothing about objects stays in ``driver``.
"""

from __future__ import annotations

import hashlib
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
from opbuild.platform.release import code
from opbuild.text.canonical import canonical_json

CODE = hashlib.sha256(code(Path(__file__).read_bytes())).hexdigest()
"""Digest of what this file does."""

_DIGITS = 32
"""Hexadecimal digits of a pipeline's digest: 128 bits, as nobody wants two to be equal."""

NO_CHECKS = ("no_runtime", "no_asserts", "no_bounds_query")
"""Shapes are checked once, when a signature is bound; without these features compiling takes 2.5 times as long."""

SSE4A = re.compile(rb"[\x66\xf2][\x40-\x4f]?\x0f[\x78\x79]|[\xf2\xf3][\x40-\x4f]?\x0f\x2b")
"""EXTRQ, INSERTQ, MOVNTSS and MOVNTSD, which Zen 4 has and Intel's processors lack: code for Zen 4, by which Halide
knows VNNI, may hold them. Where it does, or where the bytes of another instruction look so, a kernel goes without."""


class OperatorPipeline:
    """An operator as Halide is given it.

    Args:
        desc: The operator.
        level: What to compile for.
        modules: The modules that define and that schedule its family.
    """

    def __init__(self, desc: OpDesc, level: Level, modules: tuple[str, str]) -> None:
        compute, schedule = modules
        self._definition: Definition = import_module(compute).define(desc)
        import_module(schedule).schedule(self._definition, desc, Machine.of(level))
        self._dots = dot_features(self._definition, level)
        self._targets = [halide_target(level, (*NO_CHECKS, *self._dots)), halide_target(level, NO_CHECKS)]

    def digest(self) -> str:
        """Return the digest of all that decides the object but its symbol and the compiler."""
        outputs = self._definition.outputs
        serialized, used = hl.serialize_pipeline(hl.Pipeline(outputs), get_params=True)
        buffers = (each.output_buffers() if each.outputs() > 1 else [each.output_buffer()] for each in outputs)
        beside = {
            "code": CODE,
            "targets": list(map(str, self._targets)),
            "arguments": [_described(each.parameter()) for each in self._definition.arguments],
            "outputs": [[_described(each.parameter()) for each in of_one] for of_one in buffers],
            "used": [[name, *_described(each)] for name, each in sorted(used.items())],
        }
        return _digest(bytes(serialized) + canonical_json(beside).encode())

    def compile(self, symbol: str, path: Path) -> None:
        """Write the object.

        Args:
            symbol: The kernel's symbol.
            path: The object file.
        """
        outputs: list[Any] = self._definition.outputs
        pipeline = outputs[0] if len(outputs) == 1 else hl.Pipeline(outputs)
        files, (first, second) = {hl.OutputFileType.object: str(path)}, self._targets
        pipeline.compile_to(files, self._definition.arguments, symbol, first)
        if self._dots and SSE4A.search(path.read_bytes()):
            pipeline.compile_to(files, self._definition.arguments, symbol, second)


class RuntimePipeline:
    """The runtime library: what a level is given of Halide's own.

    Args:
        level: What to compile for.
    """

    def __init__(self, level: Level) -> None:
        self._target = halide_target(level)

    def digest(self) -> str:
        """Return the digest of all that decides the object but the compiler."""
        return _digest(f"{CODE} runtime {self._target}".encode())

    def compile(self, symbol: str, path: Path) -> None:
        """Write the object, which has Halide's symbols."""
        hl.compile_standalone_runtime(str(path), self._target)


def dot_features(definition: Definition, level: Level) -> tuple[str, ...]:
    """Return the features beyond the level's own with which a kernel is compiled."""
    return level.dots if definition.dots else ()  # type: ignore[attr-defined]  # it is ``target.HalideLevel``


def halide_target(level: Level, features: Iterable[str] = ()) -> hl.Target:
    """Return a level as Halide knows it, and more of Halide's features."""
    return hl.Target("-".join((level.triple, *level.features, *features)))  # type: ignore[attr-defined]  # as above


def _described(parameter: Any) -> list[str]:
    """Return the properties of a parameter and the constraints that were set on it."""
    known = [parameter.name(), str(parameter.type())]
    if not parameter.is_buffer():
        return known + [str(getattr(parameter, name)()) for name in _OF_SCALARS]
    known += [str(parameter.dimensions()), str(parameter.host_alignment()), str(parameter.memory_type())]
    axes = range(parameter.dimensions())
    return known + [str(getattr(parameter, name)(axis)) for axis in axes for name in _OF_DIMENSIONS]


_OF_SCALARS = ("min_value", "max_value", "default_value", "estimate")
_OF_DIMENSIONS = (
    "min_constraint", "extent_constraint", "stride_constraint", "min_constraint_estimate", "extent_constraint_estimate",
)  # fmt: skip


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
