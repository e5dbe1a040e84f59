"""Softmax and its logarithm: how they are computed: a row (or sixteen columns) at a time, three passes over it.

Variant: ``row``: ``stack`` keeps the powers of a row on the stack, as many as the greatest extent that the descriptor
allows, ``heap`` of any row on the heap; ``lanes`` for outer axes: columns at a time; ``parallel``. Limits: ``lanes`` <=
I.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, variables
from opbuild.backend.halide.lanes import VECTOR, parallel_rows, schedule_lanes
from opbuild.kernel.opdesc import OpDesc


def schedule(definition: Definition, desc: OpDesc, target: Any) -> None:
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
    row = parallel_rows(out, [y, z], extents, desc.variant["parallel"])
    out.vectorize(i, VECTOR, hl.TailStrategy.GuardWithIf)
    for name in ("maximum", "sum"):
        schedule_lanes(functions[name], out, row)
    functions["row"].compute_at(out, row)
    power = functions["power"]
    if not desc.attrs["log"]:
        power.compute_at(out, row).vectorize(power.args()[0], VECTOR, hl.TailStrategy.GuardWithIf)
        if desc.variant["row"] == "stack":
            power.bound_storage(power.args()[0], desc.inputs[0].dims[0].max).store_in(hl.MemoryType.Stack)


def _outer(definition: Definition, desc: OpDesc) -> None:
    out = definition.outputs[0]
    functions = definition.functions
    i, c, z = (definition.variables[name] for name in ("i", "c", "z"))
    io, ii = variables("io ii")
    lanes = desc.variant["lanes"]
    out.split(i, io, ii, lanes, hl.TailStrategy.ShiftInwards).reorder(ii, c, io, z).vectorize(ii)
    extents = [(out.output_buffer().dim(0).extent() + lanes - 1) // lanes, out.output_buffer().dim(2).extent()]
    column = parallel_rows(out, [io, z], extents, desc.variant["parallel"])
    for name in ("maximum", "sum", "row"):
        function = functions[name]
        function.compute_at(out, column).bound_extent(function.args()[0], lanes).vectorize(function.args()[0])
        if name != "row":
            function.update().vectorize(function.args()[0])
    if not desc.attrs["log"]:
        power = functions["power"]
        power.compute_at(out, column).bound_extent(power.args()[0], lanes).vectorize(power.args()[0])
