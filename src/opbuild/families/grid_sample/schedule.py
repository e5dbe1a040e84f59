"""The schedule of grid sampling: for ``lanes`` places the neighbours and weights once, then all channels.

Variant: ``lanes``. Limits: ``lanes`` <= places.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.lanes import parallel_rows
from opbuild.families.grid_sample.taps import TAPS
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a GridSample."""
    (out,), lanes = definition.outputs, int(desc.variant["lanes"])
    p, c, n = definition.variables.values()
    po, pi = hl.Var("po"), hl.Var("pi")
    out.split(p, po, pi, lanes, hl.TailStrategy.ShiftInwards).reorder(pi, c, po, n).vectorize(pi)
    buffer = out.output_buffer()
    extents = [(buffer.dim(0).extent() + lanes - 1) // lanes, buffer.dim(2).extent()]
    parallel_rows(out, [po, n], extents, definition.tasks)
    neighbours = int(desc.attrs["rank"]) * TAPS[desc.attrs["mode"]]
    for function in definition.functions.values():
        place, axis, _ = function.args()
        function.compute_at(out, po).bound(axis, 0, neighbours).bound_extent(place, lanes)
        function.reorder(place, axis).vectorize(place).unroll(axis)
