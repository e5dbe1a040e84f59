"""Products of a matrix and a vector.

``out[r, ...] = epilogue(sum over k of matrix[k, r, ...] * vector[k, ...])``: a dot product along adjacent elements for
each row. The epilogue is an expression over the sum and further operands of the output's rank; a stride of 0 repeats.
In the mode ``high_precision`` sums are float64.

Schedule: one row after the other. No limits.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, computed, parameters, variables
from opbuild.backend.halide.epilogue import fused
from opbuild.backend.halide.mathematics import FLOAT64
from opbuild.backend.halide.rows import parallel_rows, reduce_lanes, schedule_lanes
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Return the definition of a batched matrix-vector product."""
    inputs = parameters(desc)
    matrix, vector, *others = inputs
    r, b0, b1 = variables("r b0 b1")
    kept = (r, b0, b1)
    stored = matrix.type()
    kind = FLOAT64 if desc.is_precise else stored
    dot = reduce_lanes(
        "dot",
        lambda k: hl.cast(kind, matrix[(k, *kept)]) * hl.cast(kind, vector[(k, b0, b1)]),
        [matrix.dim(0).extent()],
        kept,
        lambda a, b: a + b,
        hl.cast(kind, 0),
    )
    value = fused(desc, others, kept, hl.cast(stored, dot.total[kept]))
    return computed(desc, inputs, kept, value, {"dot": dot})


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a matrix-vector product."""
    out = definition.outputs[0]
    row = parallel_rows(out, 0, definition.tasks)
    schedule_lanes(definition.functions["dot"], out, row)
