"""The schedule of TopK: row by row, the rows divided among the tasks.

Variant: ``chunk`` and ``digits``, as ``choose`` says; neither has a limit.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.lanes import parallel_rows
from opbuild.families.top_k.definition import LANES
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a TopK."""
    (out,) = definition.outputs
    rows = [definition.variables[name] for name in ("y", "z")]
    extents = [out.output_buffer().dim(number).extent() for number in (1, 2)]
    row = parallel_rows(out, rows, extents, definition.tasks)
    for name, function in definition.functions.items():
        first, kind = function.args()[0], name.rpartition("_")[2]
        if kind == "better":  # kept in a register for the vector of ranks that asks for it
            rank = definition.functions[name.replace("better", "rank")]
            function.compute_at(rank, rank.args()[0]).bound_extent(first, LANES).vectorize(first)
            function.update().reorder(first, definition.domains[name]).vectorize(first)
            continue
        function.compute_at(out, row)
        if kind in ("key", "few", "rank"):
            inner = hl.Var("inner")
            function.split(first, first, inner, LANES, hl.TailStrategy.RoundUp).vectorize(inner)
        elif kind == "lanes":
            function.vectorize(first, LANES).update().vectorize(first, LANES)
        elif kind == "places":
            function.update().unroll(definition.domains[name])
