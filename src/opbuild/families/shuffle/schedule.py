"""Channels of a blocked value in another order: the schedule."""

from __future__ import annotations

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.division import divide_plane
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def schedule(definition: Definition, _desc: OpDesc, _machine: Machine) -> None:
    """Schedule it, divided as convolutions are; a vector is the 16 lanes of one position, gathered."""
    out, names = definition.outputs[0], definition.variables
    out.vectorize(names["lane"])
    divide_plane(out, names["oy"], names["block"], definition.tasks)
