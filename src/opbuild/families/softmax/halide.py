"""Softmax and its logarithm along one axis.

Attributes: ``log``; ``axis``: ``inner`` for operands ``(C, rows, rows)``, reduced along adjacent elements, or ``outer``
for ``(I, C, rows)``, reduced for ``I`` adjacent columns at once; ``rounds``, if there is one: the type of 16 bits to
whose numbers results are rounded; ``zeros``, if there is one: which rows of a softmax are 0 instead of NaN.

Special values come out as the definition has them: a row that holds NaN or +inf, or -inf only, is NaN throughout,
unless ``zeros`` says otherwise; other elements of -inf are 0. The maximum may ignore NaN, because ``x - maximum`` is
then NaN where ``x`` is, and with it the sum. In the mode ``high_precision`` powers and their sum are float64, and a
result is rounded once.

Schedule: a row (or sixteen columns) at a time, three passes over it.

Variant: ``row``: ``stack`` keeps the powers of a row on the stack, as many as the greatest extent that the descriptor
allows, ``heap`` of any row on the heap; ``lanes`` for outer axes: columns at a time. Limits: ``lanes`` <= I.
"""

from __future__ import annotations

import math
from typing import Any

import halide as hl

from opbuild.backend.halide import precise
from opbuild.backend.halide.conversions import round_result
from opbuild.backend.halide.definition import Definition, computed, parameters, variables
from opbuild.backend.halide.mathematics import FLOAT32, FLOAT64, absolute, bounded
from opbuild.backend.halide.rows import VECTOR, parallel_columns, parallel_rows, reduce_lanes, schedule_lanes
from opbuild.backend.halide.transcendental import exp_below_zero
from opbuild.backend.halide.zeros import inverse, least, powered, shown
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Return the definition of a softmax."""
    return _inner(desc) if desc.attrs["axis"] == "inner" else _outer(desc)


def _inner(desc: OpDesc) -> Definition:
    inputs = parameters(desc)
    x = inputs[0]
    kind = FLOAT64 if desc.is_precise else FLOAT32
    i, y, z = variables("i y z")
    extent = [x.dim(0).extent()]
    maximum = reduce_lanes("maximum", lambda c: shown(desc, x[c, y, z]), extent, (y, z), hl.max, least(desc))
    power = hl.Func("power")
    power[i, y, z] = _power(desc, shown(desc, x[i, y, z]), hl.Expr(maximum.total[y, z]), kind)
    total = reduce_lanes("sum", lambda c: power[c, y, z], extent, (y, z), lambda a, b: a + b, hl.cast(kind, 0))
    row = hl.Func("row")
    if desc.attrs["log"]:
        row[y, z] = _log_of_sum(total.total[y, z], kind)
        result = _logarithm(x[i, y, z], hl.Expr(maximum.total[y, z]), row[y, z], kind)
    else:
        row[y, z] = inverse(desc, hl.Expr(total.total[y, z]))
        result = hl.cast(FLOAT32, power[i, y, z] * row[y, z])
    functions = {"maximum": maximum, "power": power, "sum": total, "row": row}
    return computed(desc, inputs, (i, y, z), round_result(desc, result, (i, y, z)), functions)


def _outer(desc: OpDesc) -> Definition:
    inputs = parameters(desc)
    x = inputs[0]
    kind = FLOAT64 if desc.is_precise else FLOAT32
    i, c, z = variables("i c z")
    domain = hl.RDom([(0, x.dim(1).extent())], "c")
    maximum, power, total, row = (hl.Func(name) for name in ("maximum", "power", "sum", "row"))
    maximum[i, z] = least(desc)
    maximum[i, z] = hl.max(maximum[i, z], shown(desc, x[i, domain.x, z]))
    power[i, c, z] = _power(desc, shown(desc, x[i, c, z]), hl.Expr(maximum[i, z]), kind)
    total[i, z] = hl.cast(kind, 0)
    # Strictly, as the logarithm asks whether it is NaN.
    total[i, z] = hl.strict_float(hl.Expr(total[i, z]) + power[i, domain.x, z])
    if desc.attrs["log"]:
        row[i, z] = _log_of_sum(total[i, z], kind)
        result = _logarithm(x[i, c, z], hl.Expr(maximum[i, z]), row[i, z], kind)
    else:
        row[i, z] = inverse(desc, hl.Expr(total[i, z]))
        result = hl.cast(FLOAT32, power[i, c, z] * row[i, z])
    functions = {"maximum": maximum, "power": power, "sum": total, "row": row}
    return computed(desc, inputs, (i, c, z), round_result(desc, result, (i, c, z)), functions)


def _power(desc: OpDesc, x: Any, greatest: Any, kind: Any) -> Any:
    """Return e to the power of ``x - greatest``, NaN if that is NaN and NaN is not to be 0."""
    shifted = hl.strict_float(x - greatest)
    if kind == FLOAT32:
        return powered(desc, shifted, exp_below_zero(shifted))
    # The difference of finite numbers; what infinities and NaN make of it shows in float32.
    power = precise.exp(bounded(precise.wide(x) - precise.wide(greatest), -200.0, 0.0))
    if "zeros" in desc.attrs:
        power = hl.strict_float(hl.select(shifted < hl.f32(-200.0), hl.f64(0), power))
    return powered(desc, shifted, hl.strict_float(hl.select(hl.is_nan(shifted), hl.f64(math.nan), power)))


def _logarithm(x: Any, greatest: Any, row: Any, kind: Any) -> Any:
    """Return ``(x - greatest) - row``, where ``row`` is the logarithm of the sum of powers.

    The whole is strict: ``greatest + row``, which a compiler would rather subtract at once, has nothing left of the
    logarithm beside a large number, and a strict first difference alone does not keep it from that.
    """
    shifted = hl.strict_float(x - greatest)
    if kind == FLOAT32:
        return hl.strict_float(shifted - row)
    precisely = hl.cast(FLOAT32, (precise.wide(x) - precise.wide(greatest)) - row)
    finite = absolute(shifted) < hl.f32(math.inf)
    return hl.strict_float(hl.select(finite, precisely, shifted - hl.cast(FLOAT32, row)))


def _log_of_sum(total: Any, kind: Any) -> Any:
    """Return the logarithm of a sum of powers: at least 1, or NaN, which ``hl.log`` would lose."""
    return hl.select(hl.is_nan(total), total, precise.log(hl.Expr(total)) if kind == FLOAT64 else hl.log(total))


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a softmax."""
    if desc.attrs["axis"] == "inner":
        _schedule_inner(definition, desc)
    else:
        _schedule_outer(definition, desc)


def _schedule_inner(definition: Definition, desc: OpDesc) -> None:
    out = definition.outputs[0]
    functions = definition.functions
    out.vectorize(definition.variables["i"], VECTOR, hl.TailStrategy.GuardWithIf)
    row = parallel_rows(out, 1, definition.tasks)
    for name in ("maximum", "sum"):
        schedule_lanes(functions[name], out, row)
    functions["row"].compute_at(out, row)
    power = functions["power"]
    if not desc.attrs["log"]:
        power.compute_at(out, row).vectorize(power.args()[0], VECTOR, hl.TailStrategy.GuardWithIf)
        if desc.variant["row"] == "stack":
            power.bound_storage(power.args()[0], desc.inputs[0].dims[0].max).store_in(hl.MemoryType.Stack)


def _schedule_outer(definition: Definition, desc: OpDesc) -> None:
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
