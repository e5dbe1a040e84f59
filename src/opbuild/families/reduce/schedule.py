"""Reductions: how they are computed.

``inner``: a row at a time in vector lanes. ``outer``: ``lanes`` columns at a time in registers. Variant:
``lanes`` for ``outer``, ``vector``, the elements of a vector, for ``inner``. Limits: ``lanes`` <= I.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, variables
from opbuild.backend.halide.lanes import parallel_rows, schedule_lanes
from opbuild.backend.halide.rows import alone
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

TREES = ("sum", "mean", "prod", "l1", "l2", "sum_square")
"""Reductions whose lanes Halide combines as a tree; it does not see that those which keep NaN are associative."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a reduction."""
    if desc.attrs["layout"] == "inner":
        _inner(definition, desc)
    else:
        _outer(definition, desc, machine)


def _inner(definition: Definition, desc: OpDesc) -> None:
    out = definition.outputs[0]
    extents = [out.output_buffer().dim(index).extent() for index in (0, 1)]
    rows = [definition.variables["y"], definition.variables["z"]]
    alone(out, definition.tasks)
    row = parallel_rows(out, rows, extents, definition.tasks)
    for name, reduction in definition.functions.items():
        schedule_lanes(reduction, out, row, tree=name in TREES)


def _outer(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    out = definition.outputs[0]
    lanes = desc.variant["lanes"]
    i, y, z = (definition.variables[name] for name in ("i", "y", "z"))
    io, ii = variables("io ii")
    vector = min(lanes, machine.lanes)
    out.split(i, io, ii, lanes, hl.TailStrategy.ShiftInwards).reorder(ii, io, y, z).vectorize(ii, vector).unroll(ii)
    buffer = out.output_buffer()
    extents = [(buffer.dim(0).extent() + lanes - 1) // lanes, buffer.dim(1).extent(), buffer.dim(2).extent()]
    alone(out, definition.tasks)
    column = parallel_rows(out, [io, y, z], extents, definition.tasks)
    domain = definition.domains["r"]
    for function in definition.functions.values():
        kept = function.args()[0]
        function.compute_at(out, column).bound_extent(kept, lanes).vectorize(kept, vector).unroll(kept)
        function.update().reorder(kept, domain[0], domain[1]).vectorize(kept, vector).unroll(kept)
