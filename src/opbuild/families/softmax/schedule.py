"""Softmax and its logarithm: how they are computed: a row (or sixteen columns) at a time, three passes over it.

Variant: ``row``: ``stack`` keeps the powers of a row on the stack, as many as the greatest extent that the descriptor
allows, ``heap`` of any row on the heap; ``lanes`` for outer axes: columns at a time. Limits: ``lanes`` <= I.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.lanes import VECTOR, parallel_columns, parallel_rows, schedule_lanes
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a softmax."""
    if desc.attrs["axis"] == "inner":
        _inner(definition, desc)
    else:
        _outer(definition, desc)


def _inner(definition: Definition, desc: OpDesc) -> None:
    out = definition.outputs[0]
    functions = definition.functions
    i, y, z = (definition.variables[name] for name in ("i", "y", "z"))
    extents = [out.output_buffer().dim(index).extent() for index in (1, 2)]
    out.vectorize(i, VECTOR, hl.TailStrategy.GuardWithIf)
    row = parallel_rows(out, [y, z], extents, definition.tasks)
    for name in ("maximum", "sum"):
        schedule_lanes(functions[name], out, row)
    functions["row"].compute_at(out, row)
    power = functions["power"]
    if not desc.attrs["log"]:
        power.compute_at(out, row).vectorize(power.args()[0], VECTOR, hl.TailStrategy.GuardWithIf)
        if desc.variant["row"] == "stack":
            power.bound_storage(power.args()[0], desc.inputs[0].dims[0].max).store_in(hl.MemoryType.Stack)


def _outer(definition: Definition, desc: OpDesc) -> None:
    out, functions, lanes = definition.outputs[0], definition.functions, desc.variant["lanes"]
    column = parallel_columns(definition, desc)
    for name in ("maximum", "sum", "row"):
        function = functions[name]
        function.compute_at(out, column).bound_extent(function.args()[0], lanes).vectorize(function.args()[0])
        if name != "row":
            function.update().vectorize(function.args()[0])
    if not desc.attrs["log"]:
        power = functions["power"]
        power.compute_at(out, column).bound_extent(power.args()[0], lanes).vectorize(power.args()[0])
