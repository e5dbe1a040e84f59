"""Winograd's convolution, F(2 x 2, 3 x 3), of blocked 8-bit numbers: the definition.

``x (16, W + 2, H + 2, C1)`` uint8 is a window as ``winograd`` reads it. ``u (2, 16 out, 8, C1 in, C1 out, 16)`` int16
are the weights transformed by twice Winograd's matrix on either side, which leaves whole numbers, neighbouring input
channels adjacent as the instruction for two products takes them. ``bias (16, C1 out)`` int32; ``out (16, OW, OH, C1
out)`` has extents rounded up to whole chunks of tiles, and zeros beyond the valid ones.

Sums are exact. A transformed input is at most four bytes, a weight at most nine: both fit 16 bits. The output's
transform gives four times the sum; its parts may leave int32, where they wrap, but it does not
(``family.MOST_INPUTS``).
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import CHECKED, Definition, constrain_output, named, parameter, variables
from opbuild.backend.halide.epilogue import apply_epilogue
from opbuild.families.blocked import BLOCK
from opbuild.families.winograd.definition import INPUT, OUTPUT, combine
from opbuild.kernel.opdesc import OpDesc

INT16, INT32 = hl.Int(16), hl.Int(32)

SHIFT = 2
"""Twice the matrix on either side: four times the sum."""


def define(desc: OpDesc) -> Definition:
    """Define it, as ``winograd`` is defined: with the same names, for its schedule."""
    m, across, down = desc.variant["tile"], desc.variant["chunk_x"], desc.variant["chunk_y"]
    n = m + 2
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, u, bias = params["x"], params["u"], params["bias"]
    source = hl.BoundaryConditions.constant_exterior(x, hl.u8(0)) if desc.variant.get(CHECKED) else x
    lane, block, t, cx, cy, a, b, i, j, point, ox, oy = variables("lane block t cx cy a b i j point ox oy")
    columns, v, acc, product, half, tile, out = (
        hl.Func(name) for name in ("columns", "v", "acc", "product", "half", "tile", "out")
    )
    taps = range(n)
    left, top = (cx * across + t % across) * m, (cy * down + t // across) * m
    read = [hl.cast(INT16, source[lane, left + i, top + k, block]) for k in taps]
    columns[lane, block, t, i, a, cx, cy] = hl.mux(a, [combine(row, read) for row in INPUT[m]])
    v[lane, block, t, b, a, cx, cy] = hl.mux(
        b, [combine(row, [columns[lane, block, t, k, a, cx, cy] for k in taps]) for row in INPUT[m]]
    )
    r = hl.RDom([(0, 2), (0, BLOCK // 2), (0, x.dim(3).extent())], "r")
    acc[lane, block, t, point, cx, cy] = 0
    acc[lane, block, t, point, cx, cy] += hl.cast(
        INT32, v[r[0] + 2 * r[1], r[2], t, point % n, point // n, cx, cy]
    ) * hl.cast(INT32, u[r[0], lane, r[1], r[2], block, point])
    product[lane, block, t, point, cx, cy] = acc[lane, block, t, point, cx, cy]
    half[lane, block, t, b, j, cx, cy] = hl.mux(
        j, [combine(row, [product[lane, block, t, b + n * k, cx, cy] for k in taps]) for row in OUTPUT[m]]
    )
    tile[lane, block, t, i, j, cx, cy] = hl.mux(
        i, [combine(row, [half[lane, block, t, k, j, cx, cy] for k in taps]) for row in OUTPUT[m]]
    )
    chunk = (ox // (m * across), oy // (m * down))
    number = (oy // m - chunk[1] * down) * across + (ox // m - chunk[0] * across)
    number = hl.unsafe_promise_clamped(number, 0, across * down - 1)
    total = (tile[lane, block, number, ox % m, oy % m, chunk[0], chunk[1]] >> SHIFT) + bias[lane, block]
    result = apply_epilogue(desc, params, total, (lane, ox, oy, block))
    valid = (ox < x.dim(1).extent() - 2) & (oy < x.dim(2).extent() - 2)
    out[lane, ox, oy, block] = hl.select(valid, result, hl.cast(result.type(), 0))
    constrain_output(out, desc.outputs[0])
    functions = {"columns": columns, "v": v, "acc": acc, "product": product, "half": half, "tile": tile}
    names = named((lane, block, t, cx, cy, a, b, i, j, point, ox, oy))
    return Definition(list(params.values()), [out], names, functions, {"r": r}, dots=True)
