"""Local response normalization across channels of blocked values: the schedule. A task is one plane."""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``parallel``."""
    out, names, squares = definition.outputs[0], definition.variables, definition.functions["squares"]
    out.vectorize(names["lane"])
    if desc.variant["parallel"]:
        out.parallel(names["block"])
    place = names["place"]
    squares.compute_at(out, names["ox"]).bound(place, 0, 48).vectorize(place, 16).unroll(place)
    squares.store_in(hl.MemoryType.Stack)
