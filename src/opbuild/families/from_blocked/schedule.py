"""The way out of channel blocks: the schedule. A vector runs along a row, a task is one plane."""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``width``, the positions of a vector, and ``parallel``."""
    out, names = definition.outputs[0], definition.variables
    if desc.variant["width"] > 1:
        out.vectorize(names["ox"], desc.variant["width"], hl.TailStrategy.ShiftInwards)
    if desc.variant["parallel"]:
        out.parallel(names["channel"])
