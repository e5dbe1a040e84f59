"""ArgMax and ArgMin: how they are computed.

``inner``: a row at a time, lanes side by side. ``outer``: ``lanes`` columns at a time. Variant: ``lanes`` for
``outer``, ``vector``, the elements of a vector, for ``inner``. Limits: ``lanes`` <= I.
"""

from __future__ import annotations

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.lanes import parallel_columns, parallel_rows
from opbuild.backend.halide.rows import alone
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule an ArgMax or ArgMin."""
    out = definition.outputs[0]
    buffer = out.output_buffer()
    total = definition.functions["total"]
    if desc.attrs["layout"] == "inner":
        rows = [definition.variables["y"], definition.variables["z"]]
        alone(out, definition.tasks)
        row = parallel_rows(out, rows, [buffer.dim(0).extent(), buffer.dim(1).extent()], definition.tasks)
        partial = definition.functions["partial"]
        lane = partial.args()[0]
        partial.compute_at(out, row).bound_extent(lane, desc.variant["vector"]).vectorize(lane)
        partial.update().reorder(lane, definition.domains["chunks"].x).vectorize(lane)
        total.compute_at(out, row)
        return
    lanes = desc.variant["lanes"]
    column = parallel_columns(definition, desc)
    kept = total.args()[0]
    total.compute_at(out, column).bound_extent(kept, lanes).vectorize(kept)
    total.update().reorder(kept, definition.domains["c"].x).vectorize(kept)
