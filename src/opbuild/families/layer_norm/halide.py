"""Normalisation of rows to mean 0 and variance 1.

Layer, group and instance normalisation are one: ``x`` is ``(I, J, rows, rows)`` and each row of ``I * J`` elements
becomes ``(x - mean) / sqrt(variance + epsilon) * scale + bias``. ``scale`` and ``bias`` have the rank of ``x``; strides
of 0 repeat, so that they vary along the row (layer) or from row to row (instance). Attributes: ``centered``: false
leaves the mean out (root mean square normalisation); ``bias``: whether there is one; ``rounds``, if there is one: the
type of 16 bits to whose numbers results are rounded. ``epsilon`` is an operand of one element. In the mode
``high_precision`` all of it is float64, rounded once.

Schedule: a row at a time, three passes over it. No limits.
"""

from __future__ import annotations

from operator import add
from typing import Any

import halide as hl

from opbuild.backend.halide.conversions import round_result
from opbuild.backend.halide.definition import Definition, computed, parameters, variables
from opbuild.backend.halide.mathematics import FLOAT32, FLOAT64
from opbuild.backend.halide.rows import VECTOR, parallel_rows, reduce_lanes, schedule_lanes
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Return the definition of a normalisation of rows; mean first, then the variance around it."""
    inputs = parameters(desc)
    x, epsilon, scale, *bias = inputs
    i, j, y, z = variables("i j y z")
    extents = [x.dim(0).extent(), x.dim(1).extent()]
    kind = FLOAT64 if desc.is_precise else FLOAT32
    count = hl.cast(kind, extents[0]) * hl.cast(kind, extents[1])
    functions: dict[str, Any] = {}

    def centered(i: Any, j: Any) -> Any:
        value = hl.cast(kind, x[i, j, y, z])
        return value - functions["mean"][y, z] if desc.attrs["centered"] else value

    if desc.attrs["centered"]:
        functions["sum"] = reduce_lanes(
            "sum", lambda i, j: hl.cast(kind, x[i, j, y, z]), extents, (y, z), add, hl.cast(kind, 0)
        )
        functions["mean"] = hl.Func("mean")
        functions["mean"][y, z] = functions["sum"].total[y, z] / count
    functions["squares"] = reduce_lanes(
        "squares", lambda i, j: centered(i, j) * centered(i, j), extents, (y, z), add, hl.cast(kind, 0)
    )
    functions["factor"] = hl.Func("factor")
    variance = functions["squares"].total[y, z] / count
    functions["factor"][y, z] = hl.cast(kind, 1) / hl.sqrt(variance + hl.cast(kind, epsilon[0]))

    value = centered(i, j) * (functions["factor"][y, z] * hl.cast(kind, scale[i, j, y, z]))
    value = value + hl.cast(kind, bias[0][i, j, y, z]) if desc.attrs["bias"] else value
    return computed(desc, inputs, (i, j, y, z), round_result(desc, hl.cast(FLOAT32, value), (i, j, y, z)), functions)


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a normalisation of rows."""
    out = definition.outputs[0]
    functions = definition.functions
    out.vectorize(definition.variables["i"], VECTOR, hl.TailStrategy.GuardWithIf)
    row = parallel_rows(out, 2, definition.tasks)
    for name in ("sum", "squares"):
        if name in functions:
            schedule_lanes(functions[name], out, row)
    for name in ("mean", "factor"):
        if name in functions:
            functions[name].compute_at(out, row)
