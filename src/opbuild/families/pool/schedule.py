"""Max and average pooling of blocked values: the schedule.

All taps are unrolled in the definition; a vector is the 16 lanes of one position, a task one plane.
"""

from __future__ import annotations

from opbuild.backend.halide.definition import Definition
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``parallel``."""
    out, names = definition.outputs[0], definition.variables
    out.vectorize(names["lane"]).never_partition_all()
    if desc.variant["parallel"]:
        out.parallel(names["block"])
