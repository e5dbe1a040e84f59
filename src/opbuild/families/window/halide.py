"""Pools of plain values.

``x (OW, OH, OD, kw, kh, kd, planes)`` is what each output reads at each tap; it overlaps itself in memory, and stride
and dilation are its strides. ``out (OW, OH, OD, planes)``. ``attrs["kind"]``:

* ``max``: NaN is greater than every number. ``l1``, ``l2``: norms. ``average``: the sum divided by ``count (OW, OH,
  OD)``.
* ``place``: ``place (OW, OH, OD, kw, kh, kd)`` of the first of the greatest elements, counted from ``start (planes)``.
  A place of -1 is no part of the input.

In the mode ``high_precision`` a float32 is summed up in float64 and rounded once.

Schedule: ``lanes`` outputs of a row at a time, planes and slices divided among the tasks.

Variant: ``lanes``. Limits: ``lanes`` <= OW.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import TYPES, Definition, computed, parameter, variables
from opbuild.backend.halide.mathematics import maximum
from opbuild.backend.halide.rows import alone, parallel_rows
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Return the definition of a pool."""
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, kind = params["x"], desc.attrs["kind"]
    index = variables("i j k plane")
    domain = hl.RDom([(0, x.dim(number).extent()) for number in (3, 4, 5)], "taps")
    taps = [domain[number] for number in range(3)]
    found = hl.Func("found")
    value = x[(*index[:3], *taps, index[3])]
    if kind == "place":
        place = params["place"][(*index[:3], *taps)]
        found[index] = hl.Tuple([hl.cast(value.type(), 0), hl.i64(-1)])
        found[index] = _first_greatest(found[index], value, place)
        result = found[index][1] + params["start"][index[3]]
    else:
        stored = TYPES[desc.inputs[0].dtype]
        wide = TYPES["float64"] if desc.is_precise else stored
        found[index] = stored.min() if kind == "max" else hl.cast(wide, 0)
        found[index] = _combined(kind, hl.Expr(found[index]), hl.cast(wide, value))
        total = hl.Expr(found[index])
        if kind == "l2":
            total = hl.sqrt(total)
        elif kind == "average":
            total = total / hl.cast(wide, params["count"][index[:3]])
        result = hl.cast(stored, total)
    return computed(desc, list(params.values()), index, result, {"found": found}, {"taps": domain})


def _combined(kind: str, old: Any, value: Any) -> Any:
    if kind == "max":
        return hl.strict_float(maximum(old, value)) if value.type().is_float() else hl.max(old, value)
    if kind == "l1":
        return old + hl.cast(value.type(), hl.abs(value))
    return old + (value * value if kind == "l2" else value)


def _first_greatest(old: Any, value: Any, place: Any) -> Any:
    greatest, where = old[0], old[1]
    greater = value > greatest
    if value.type().is_float():
        greater = hl.strict_float(greater) | (hl.is_nan(value) & ~hl.is_nan(greatest))
    better = (place >= hl.i64(0)) & ((where < hl.i64(0)) | greater)
    return hl.Tuple([hl.select(better, value, greatest), hl.select(better, place, where)])


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a pool."""
    out, found, lanes = definition.outputs[0], definition.functions["found"], desc.variant["lanes"]
    i, j, k, plane = definition.variables.values()
    io, ii = hl.Var("io"), hl.Var("ii")
    out.split(i, io, ii, lanes, hl.TailStrategy.ShiftInwards).reorder(ii, io, j, k, plane).vectorize(ii)
    alone(out, definition.tasks)
    parallel_rows(out, 2, definition.tasks)
    taps = [definition.domains["taps"][number] for number in range(3)]
    found.compute_at(out, io).bound_extent(i, lanes).vectorize(i)
    found.update().reorder(i, *taps).vectorize(i)
