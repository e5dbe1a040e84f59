"""Local response normalization across channels of blocked values: the schedule."""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.division import divide_plane
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

TOGETHER = 16
"""Positions whose squares are made before they are added up."""


def schedule(definition: Definition, _desc: OpDesc, _machine: Machine) -> None:
    """Schedule it, divided as convolutions are."""
    out, names, squares = definition.outputs[0], definition.variables, definition.functions["squares"]
    xo = hl.Var("xo")
    out.split(names["ox"], xo, names["ox"], TOGETHER, hl.TailStrategy.GuardWithIf).vectorize(names["lane"])
    divide_plane(out, names["oy"], names["block"], definition.tasks)
    place = names["place"]
    squares.compute_at(out, xo).bound(place, 0, 48).vectorize(place, 16).unroll(place)
    squares.store_in(hl.MemoryType.Stack)
