"""Max and average pooling of blocked values: the schedule.

All taps are unrolled in the definition; a vector is the 16 lanes of one position.
"""

from __future__ import annotations

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.division import divide_plane
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def schedule(definition: Definition, _desc: OpDesc, _machine: Machine) -> None:
    """Schedule a pool, divided as convolutions are."""
    out, names = definition.outputs[0], definition.variables
    out.vectorize(names["lane"]).never_partition_all()
    divide_plane(out, names["oy"], names["block"], definition.tasks)
