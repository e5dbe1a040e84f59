"""Winograd's convolution of 8-bit numbers: the schedule, that of ``winograd``, with two products an instruction."""

from __future__ import annotations

from opbuild.backend.halide.definition import Definition
from opbuild.families.winograd import schedule as winograd
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``, whose parts ``winograd``'s record describes."""
    winograd.schedule(definition, desc, machine)
    r, (lane, block, t) = definition.domains["r"], (definition.variables[name] for name in ("lane", "block", "t"))
    definition.functions["acc"].update().reorder(r[0], lane, block, t, r[1], r[2]).atomic().vectorize(r[0])
