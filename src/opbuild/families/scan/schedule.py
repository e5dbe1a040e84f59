"""Running sums and products: how they are computed: ``lanes`` columns at a time, each from one end to the other.

Variant: ``lanes``. Limits: ``lanes`` <= I.
"""

from __future__ import annotations

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.lanes import parallel_columns
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a running sum or product."""
    out, total, lanes = definition.outputs[0], definition.functions["total"], desc.variant["lanes"]
    column = parallel_columns(definition, desc)
    kept = total.args()[0]
    total.compute_at(out, column).bound_extent(kept, lanes).reorder_storage(kept, total.args()[1], total.args()[2])
    total.vectorize(kept)
    total.update().reorder(kept, definition.domains["steps"].x).vectorize(kept)
