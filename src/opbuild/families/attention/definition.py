"""Attention: what it computes.

``score[j, i] = epilogue(sum over d of q[d, i] * k[j, d])``, ``out[e, i] = sum over j of weight[j, i] * v[e, j]``, where
``weight[., i]`` is the softmax of ``score[., i]``, as many times as there are batches. The attribute ``epilogue`` is an
expression over the sum and the operands after ``v``, each of a score's rank ``(j, i, ...)``; a stride of 0 repeats. If
there is an attribute ``rounds``, weights and results are rounded to the numbers of this type of 16 bits.

Special values come out as those of the two products and the softmax one by one: a row of scores that holds NaN or +inf,
or -inf only, makes its output NaN. The powers are a power of two smaller than the softmax has them, so that their sum
is at most 1 and a sum of values overflows no earlier than with weights; dividing by their sum takes it away exactly.
Weights that are rounded are divided first.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, named, parameters, variables
from opbuild.backend.halide.exponential import exp_below_zero
from opbuild.backend.halide.expression import compile_expression
from opbuild.backend.halide.rounding import round_result
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json

FUNCTIONS = ("query", "dot", "score", "greatest", "power", "total", "factor", "weighted")
"""What schedules find; Halide gives the same name another number where it was given before."""


def define(desc: OpDesc) -> Definition:
    """Return the definition of an attention."""
    inputs = parameters(desc)
    q, k, v, *others = inputs
    e, i, j, d, *batch = variables("e i j d b0 b1 b2")
    row, rows = (i, *batch), q.dim(1).extent()
    keys = hl.RDom([(0, k.dim(0).extent())], "keys")
    sizes = hl.RDom([(0, q.dim(0).extent())], "sizes")
    functions = {name: hl.Func(name) for name in FUNCTIONS}
    query, dot, score, greatest, power, total, factor, weighted = functions.values()
    out = hl.Func("out")
    # A block has rows beyond the last one, which nobody stores: they are the last one once more.
    inside = hl.clamp(i, 0, rows - 1)
    query[(i, d, *batch)] = q[(d, inside, *batch)]
    dot[(i, j, *batch)] = hl.f32(0)
    dot[(i, j, *batch)] += query[(i, sizes.x, *batch)] * k[(j, sizes.x, *batch)]
    operands = [other[(j, inside, *batch)] for other in others]
    place = (i, j, *batch)
    score[place] = compile_expression(from_json(desc.attrs["epilogue"]), operands, place, hl.Expr(dot[place]))
    greatest[row] = hl.Float(32).min()
    greatest[row] = hl.max(greatest[row], score[(i, keys.x, *batch)])
    # The least power of two that is more than the number of keys.
    digits = hl.i32(32) - hl.cast(hl.Int(32), hl.count_leading_zeros(k.dim(0).extent()))
    smaller = hl.reinterpret(hl.Float(32), (hl.i32(127) - digits) << 23)
    power[place] = exp_below_zero(hl.strict_float(score[place] - hl.Expr(greatest[row]))) * smaller
    total[row] = hl.f32(0)
    total[row] += power[(i, keys.x, *batch)]
    factor[row] = hl.f32(1) / total[row]
    weight = power
    if "rounds" in desc.attrs:
        weight = functions["weight"] = hl.Func("weight")
        weight[place] = round_result(desc, power[place] * factor[row], place)
    weighted[(e, *row)] = hl.f32(0)
    weighted[(e, *row)] += weight[(i, keys.x, *batch)] * v[(e, keys.x, *batch)]
    result = weighted[(e, *row)] if "rounds" in desc.attrs else weighted[(e, *row)] * factor[row]
    out[(e, *row)] = round_result(desc, result, (e, *row))
    constrain_output(out, desc.outputs[0])
    return Definition(inputs, [out], named((e, *row)), functions, {"keys": keys, "sizes": sizes})
