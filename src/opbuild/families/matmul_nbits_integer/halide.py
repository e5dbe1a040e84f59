"""Products of weights of few bits and of float32 that becomes int8, a block at a time.

``out[n, m] = epilogue(sum over blocks of step[block, m] * scale[n, block] * sum over k in the block of
left[k, m] * (w[n, k] - zero[n, block]))``: ``left`` are the steps of the left operand from 0, of which its greatest
magnitude in a block has 127. Sums of a block are exact, those of blocks float32. A block that has a NaN or an infinity
has the step NaN. Attributes are those of ``matmul_nbits``; K is whole blocks, of at most ``MOST_BLOCK``.

``rhs`` lies as ``(group, panel, bytes of K/group, N/panel)``: a group of neighbours along K is adjacent, as the
instructions take them. With 4 bits the low half of a byte is of the first half of its block, the high half of the
other; with 2 bits the lowest two are of the first quarter, and so on. ``scale``, float32 or
float16, and ``zeros`` lie as ``(panel, blocks, N/panel)``. What lies beyond N is never looked at.

Schedule: the left operand is converted once, before all tiles. A tile of sums of a block, and of blocks, stays in
registers, or nearly, while weights are taken apart once for its rows. Four products are added up by one instruction
(VPDPBUSD) where the level has it, else two, widened to 16 bits (VPMADDWD). With ``halves``, for 2 and 4 bits, bytes
are multiplied (VPMADDUBSW) and the sums of two added up (VPMADDWD).

Limits: ``rows`` <= M; N/panel is a multiple of ``panels``.
"""

from __future__ import annotations

import math
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, computed, parameters, variables
from opbuild.backend.halide.epilogue import fused
from opbuild.backend.halide.mathematics import FLOAT32
from opbuild.families.matmul.halide import LEAST_CONVERTED, divide_rows, tile_output
from opbuild.families.matmul_integer.halide import PAIR, sum_in_halves
from opbuild.families.matmul_nbits.halide import tile_sums
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

UINT8, INT8, INT16 = hl.UInt(8), hl.Int(8), hl.Int(16)

MOST = 127
"""The steps that the greatest magnitude of a block has."""


def define(desc: OpDesc) -> Definition:
    """Return the definition of a product with weights of few bits and a left operand of int8."""
    inputs = parameters(desc)
    lhs, rhs, scale, *others = inputs
    zeros = others.pop(0) if desc.attrs["zeros"] else None
    n, m, b = variables("n m b")
    bits, block = desc.attrs["bits"], desc.attrs["block"]
    group, panel = (dim.extent for dim in desc.inputs[1].dims[:2])
    within = hl.RDom([(0, block)], "within")
    functions = _left(lhs, within.x, block, INT16 if group == PAIR else INT8)
    left, step, beside = (functions[name] for name in ("left", "step", "beside"))
    parts = 8 // bits
    groups = block // (group * parts)
    # Of a number that fits int8 Halide would not see that the instruction takes it: what is read from a function may be
    # any of its type.
    byte, part, number = variables("byte part number")
    functions["weight"] = weight = hl.Func("weight")
    whole = rhs[byte, n % panel, number, n // panel]
    whole = whole if parts == 1 else (whole >> hl.cast(UINT8, part * bits)) & hl.u8(2**bits - 1)
    weight[byte, n, part, number] = hl.cast(INT16 if group == PAIR else UINT8, whole)

    def product(byte: Any, part: Any, number: Any, own: Any, wide: Any) -> Any:
        right = weight[byte, n, part, own * groups + number]
        return wide(right) * wide(left[part * (block // parts) + number * group + byte, own, m])

    halves = bool(desc.attrs.get("halves"))
    k = hl.RDom([(0, group // PAIR if halves else group), (0, parts), (0, groups)], "k")
    functions["total"] = total = hl.Func("total")
    total[n, m, b] = hl.i32(0) if zeros is not None else -hl.i32(2 ** (bits - 1)) * beside[b, m]
    if halves:
        pair, near = hl.Var("pair"), hl.RDom([(0, PAIR)], "near")
        functions["halves"] = half = hl.Func("halves")
        at = (pair, n, m, b, part, number)
        half[at] = hl.i16(0)
        # That the addition saturates names the instruction: these sums fit.
        half[at] = hl.saturating_add(half[at], product(near.x + PAIR * pair, part, number, b, hl.i16))
        total[n, m, b] += hl.i32(half[k.x, n, m, b, k.y, k.z])
    else:
        total[n, m, b] += product(k.x, k.y, k.z, b, hl.i32)
    blocks = hl.RDom([(0, lhs.dim(0).extent() // block)], "blocks")
    place, own = (n % panel, blocks.x, n // panel), (blocks.x, m)
    summed = hl.f32(total[n, m, blocks.x])
    if zeros is not None:
        summed -= hl.f32(zeros[place]) * hl.f32(beside[own])
    functions["acc"] = acc = hl.Func("acc")
    functions["scales"] = scales = hl.Func("scales")
    scales[n, b] = hl.cast(FLOAT32, scale[n % panel, b, n // panel])
    acc[n, m] = hl.f32(0)
    # Else the compiler groups the three factors otherwise for other rows of a tile, and bits depend on the tasks.
    acc[n, m] += summed * hl.strict_float(step[own] * scales[n, blocks.x])
    domains = {"k": k, "blocks": blocks, "within": within}
    return computed(desc, inputs, (n, m), fused(desc, others, (n, m), acc[n, m]), functions, domains, dots=True)


def _left(lhs: Any, within: Any, block: int, kind: Any) -> dict[str, Any]:
    """Return the left operand as whole numbers of a type, their step and sum of each block, and what these are of."""
    b, e, m = variables("b e m")
    names = ("peak", "greatest", "step", "left", "sum", "beside")
    functions = {name: hl.Func(name) for name in names}
    peak, greatest, step, left, sums, beside = functions.values()
    value = lhs[b * block + within, m]
    peak[b, m] = hl.f32(0)
    peak[b, m] = hl.max(hl.Expr(peak[b, m]), hl.select(hl.is_nan(value), FLOAT32.max(), hl.abs(value)))
    greatest[b, m] = peak[b, m]
    most = hl.Expr(greatest[b, m])
    # It is stored: of what follows in registers the compiler takes for granted that it is no NaN.
    step[b, m] = hl.strict_float(hl.select(most < FLOAT32.max(), most * hl.f32(1 / MOST), hl.f32(math.nan)))
    inverse = hl.select((most > 0) & (most < FLOAT32.max()), hl.f32(MOST) / most, hl.f32(0))
    left[e, b, m] = hl.cast(kind, hl.clamp(hl.round(lhs[b * block + e, m] * inverse), -MOST, MOST))
    sums[b, m] = hl.i32(0)
    sums[b, m] += hl.i32(left[within, b, m])
    beside[b, m] = sums[b, m]
    return functions


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a product with weights of few bits and a left operand of int8."""
    out, lanes, functions, domains = definition.outputs[0], machine.lanes, definition.functions, definition.domains
    (group, panel), parts = (dim.extent for dim in desc.inputs[1].dims[:2]), 8 // desc.attrs["bits"]
    rows, columns = tile = desc.variant["rows"], desc.variant["panels"] * panel
    mo, unit = tile_output(definition, tile, lanes)
    acc, total, weight, k = functions["acc"], functions["total"], functions["weight"], domains["k"]
    acc.compute_at(out, mo)
    tile_sums(acc, tile, lanes, [domains["blocks"].x])
    total.compute_at(acc, domains["blocks"].x)
    n, m, _ = total.args()
    total.bound_extent(n, columns).bound_extent(m, rows).vectorize(n, lanes).unroll(n).unroll(m)
    no, ni = variables("no ni")
    update = total.update().reorder(k.x, n, m, k.y, k.z).split(n, no, ni, lanes).reorder(k.x, ni, no, m, k.y, k.z)
    update.atomic().vectorize(k.x).vectorize(ni).unroll(no).unroll(m).unroll(k.y)
    byte, _, part, number = weight.args()
    weight.compute_at(total, k.z).bound_extent(byte, group).bound_extent(n, columns).bound_extent(part, parts)
    weight.bound_extent(number, 1).reorder(byte, n, part)
    weight.vectorize(byte).vectorize(n, lanes).unroll(n).unroll(part)
    for stage in (total, update, weight):
        stage.never_partition_all()
    if desc.inputs[2].dtype == "float16" and rows >= LEAST_WIDENED:
        scales = functions["scales"].compute_at(out, unit).bound_extent(n, columns)
        scales.vectorize(n, lanes).unroll(n).never_partition_all()
    if "halves" in functions:
        halves = functions["halves"].compute_at(total, m)
        sum_in_halves(halves, halves.args(), columns, lanes)
    _schedule_left(definition, desc.attrs["block"], lanes)


LEAST_WIDENED = 3
"""Rows of tiles from which on scales of 16 bits become float32 before all tiles of a panel: there are several."""

MOST_AT_ONCE = 64
"""Numbers of a block that are reduced at once: a vector at a time, 128 rows of 2048 take 1.4 of the time to convert."""


def _schedule_left(definition: Definition, block: int, lanes: int) -> None:
    """Divide the rows of the left operand among tasks, which convert them."""
    functions, within = definition.functions, definition.domains["within"].x
    for name in ("greatest", "step", "left", "beside"):
        divide_rows(definition, name, LEAST_CONVERTED)
    e = functions["left"].args()[0]
    functions["left"].bound_extent(e, within.extent()).vectorize(e, lanes)
    for name, reader in (("peak", "greatest"), ("sum", "beside")):
        function = functions[name].compute_at(functions[reader], hl.Var("b"))
        function.update().atomic().vectorize(within, min(block, MOST_AT_ONCE))
