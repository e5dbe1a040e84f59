"""Running sums and products: how they are computed: ``lanes`` columns at a time, each from one end to the other.

Variant: ``lanes`` and ``parallel``. Limits: ``lanes`` <= I.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, variables
from opbuild.backend.halide.lanes import parallel_rows
from opbuild.kernel.opdesc import OpDesc


def schedule(definition: Definition, desc: OpDesc, target: Any) -> None:
    """Schedule a running sum or product."""
    out, total, lanes = definition.outputs[0], definition.functions["total"], desc.variant["lanes"]
    i, c, z = (definition.variables[name] for name in ("i", "c", "z"))
    io, ii = variables("io ii")
    out.split(i, io, ii, lanes, hl.TailStrategy.ShiftInwards).reorder(ii, c, io, z).vectorize(ii)
    buffer = out.output_buffer()
    extents = [(buffer.dim(0).extent() + (lanes - 1)) // lanes, buffer.dim(2).extent()]
    column = parallel_rows(out, [io, z], extents, desc.variant["parallel"])
    kept = total.args()[0]
    total.compute_at(out, column).bound_extent(kept, lanes).reorder_storage(kept, total.args()[1], total.args()[2])
    total.vectorize(kept)
    total.update().reorder(kept, definition.domains["steps"].x).vectorize(kept)
