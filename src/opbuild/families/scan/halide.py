"""Running sums and products.

``x`` and ``out (I, C, rows)``: each element of ``out`` combines those of ``x`` up to its own place along C, one after
the other. Attributes: ``product`` instead of a sum; ``exclusive``: its own element is left out; ``reverse``: from the
end to the front. In the mode ``high_precision``, float32 is combined in float64 and rounded once.

Schedule: ``lanes`` columns at a time, each from one end to the other.

Variant: ``lanes``. Limits: ``lanes`` <= I.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import TYPES, Definition, computed, parameters, variables
from opbuild.backend.halide.rows import parallel_columns
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Return the definition of a running sum or product."""
    inputs = parameters(desc)
    x, stored = inputs[0], TYPES[desc.inputs[0].dtype]
    kind = TYPES["float64"] if desc.is_precise else stored
    i, c, z = variables("i c z")
    count = x.dim(1).extent()
    total = hl.Func("total")

    def placed(place: Any) -> Any:
        return count - 1 - place if desc.attrs["reverse"] else place

    if desc.attrs["exclusive"]:
        neutral = hl.cast(kind, 1 if desc.attrs["product"] else 0)
        total[i, c, z] = hl.select(c == 0, neutral, hl.cast(kind, x[i, placed(hl.max(c - 1, 0)), z]))
    else:
        total[i, c, z] = hl.cast(kind, x[i, placed(c), z])
    steps = hl.RDom([(1, hl.max(count - 1, 0))], "steps")
    before, own = hl.Expr(total[i, steps.x - 1, z]), hl.Expr(total[i, steps.x, z])
    both = before * own if desc.attrs["product"] else before + own
    total[i, steps.x, z] = hl.strict_float(both) if kind.is_float() else both
    value = hl.cast(stored, total[i, placed(c), z])
    return computed(desc, inputs, (i, c, z), value, {"total": total}, {"steps": steps})


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a running sum or product."""
    out, total, lanes = definition.outputs[0], definition.functions["total"], desc.variant["lanes"]
    column = parallel_columns(definition, desc)
    kept = total.args()[0]
    total.compute_at(out, column).bound_extent(kept, lanes).reorder_storage(kept, total.args()[1], total.args()[2])
    total.vectorize(kept)
    total.update().reorder(kept, definition.domains["steps"].x).vectorize(kept)
