"""Local response normalization across channels of blocked values: the schedule."""

from __future__ import annotations

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.division import divide_plane
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc


def schedule(definition: Definition, _desc: OpDesc, _machine: Machine) -> None:
    """Schedule it, divided as convolutions are."""
    out, names, squares = definition.outputs[0], definition.variables, definition.functions["squares"]
    out.vectorize(names["lane"])
    divide_plane(out, names["oy"], names["block"], definition.tasks)
    place = names["place"]
    squares.compute_at(out, names["oy"]).bound(place, 0, 48).vectorize(place, 16).unroll(place)
