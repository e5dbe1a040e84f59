"""The way into channel blocks: the schedule. A vector is the 16 lanes of one position, a task one block."""

from __future__ import annotations

from opbuild.backend.halide.definition import Definition
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``parallel``."""
    out, names = definition.outputs[0], definition.variables
    out.vectorize(names["lane"])
    if desc.variant["parallel"]:
        out.parallel(names["block"])
