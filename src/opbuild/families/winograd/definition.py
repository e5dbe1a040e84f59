"""Winograd's convolution, F(m x m, 3 x 3) with m = 2 or 4, of blocked values: the definition.

``x (16, W + 2, H + 2, C1)`` is a window of the valid extents plus the kernel's two; ``u (16 out, C in, C1 out, n *
n)`` with n = m + 2 are the transformed weights; ``bias (16, C1 out)``; ``out (16, OW, OH, C1 out)`` has extents
rounded up to whole chunks of tiles: what lies beyond the valid extents gets zero, which is what the halo holds
anyway. Reads beyond the valid extents meet the halo of the input. Matrices are those of Lavin and Gray, "Fast
Algorithms for Convolutional Neural Networks".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import CHECKED, Definition, constrain_output, named, parameter, variables
from opbuild.backend.halide.epilogue import apply_epilogue
from opbuild.kernel.opdesc import OpDesc

INPUT = {
    2: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    4: (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
}
"""The input's transform, B transposed, by m."""

OUTPUT = {
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
}
"""The output's transform, A transposed, by m."""


Accumulate = Callable[[Any, Any, Callable[[Any, Any], Any]], Any]
"""Defines a sum: of its function, its place (lane, block, t, point, cx, cy) and what reads the transformed input at a
lane and a block. Returns the domain."""


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``epilogue``, ``variant`` has ``tile`` (m).

    With ``variant["checked"]``, zeros stand for what lies beyond the extents of ``x``: the halo is not part of them.
    """
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, u = params["x"], params["u"]

    def accumulate(acc: Any, place: Any, read: Callable[[Any, Any], Any]) -> Any:
        lane, block, _, point, *_ = place
        r = hl.RDom([(0, 16), (0, x.dim(3).extent())], "r")
        acc[place] = hl.f32(0)
        acc[place] += read(r[0], r[1]) * u[lane, r[1] * 16 + r[0], block, point]
        return r

    return transformed(desc, params, hl.Float(32), accumulate, lambda total: total)


def transformed(
    desc: OpDesc, params: dict[str, Any], kind: Any, accumulate: Accumulate, scaled: Callable[[Any], Any]
) -> Definition:
    """Define a convolution by its products of transformed inputs and weights.

    Args:
        desc: The descriptor.
        params: Parameters of its inputs by name.
        kind: The type of transformed inputs.
        accumulate: What defines the products' sums.
        scaled: What the transformed sums are divided by, as a function of them.
    """
    m, across, down = (desc.variant[name] for name in ("tile", "chunk_x", "chunk_y"))
    n = m + 2
    x, bias = params["x"], params["bias"]
    source = hl.BoundaryConditions.constant_exterior(x, hl.cast(x.type(), 0)) if desc.variant.get(CHECKED) else x
    lane, block, t, cx, cy, a, b, i, j, point, ox, oy = variables("lane block t cx cy a b i j point ox oy")
    columns, v, acc, product, half, tile, out = (
        hl.Func(name) for name in ("columns", "v", "acc", "product", "half", "tile", "out")
    )
    taps = range(n)
    left, top = (cx * across + t % across) * m, (cy * down + t // across) * m
    read = [hl.cast(kind, source[lane, left + i, top + k, block]) for k in taps]
    columns[lane, block, t, i, a, cx, cy] = hl.mux(a, [combine(row, read) for row in INPUT[m]])
    v[lane, block, t, b, a, cx, cy] = hl.mux(
        b, [combine(row, [columns[lane, block, t, k, a, cx, cy] for k in taps]) for row in INPUT[m]]
    )
    place = (lane, block, t, point, cx, cy)
    r = accumulate(acc, place, lambda channel, of: v[channel, of, t, point % n, point // n, cx, cy])
    product[place] = acc[place]
    half[lane, block, t, b, j, cx, cy] = hl.mux(
        j, [combine(row, [product[lane, block, t, b + n * k, cx, cy] for k in taps]) for row in OUTPUT[m]]
    )
    tile[lane, block, t, i, j, cx, cy] = hl.mux(
        i, [combine(row, [half[lane, block, t, k, j, cx, cy] for k in taps]) for row in OUTPUT[m]]
    )
    chunk = (ox // (m * across), oy // (m * down))
    # Halide finds the one tile that a position needs from differences, not from remainders.
    number = (oy // m - chunk[1] * down) * across + (ox // m - chunk[0] * across)
    # It is one of the chunk's; without schedule (ccec_O0) Halide would compute, and read, what lies far outside.
    number = hl.unsafe_promise_clamped(number, 0, across * down - 1)
    total = scaled(tile[lane, block, number, ox % m, oy % m, chunk[0], chunk[1]]) + bias[lane, block]
    result = apply_epilogue(desc, params, total, (lane, ox, oy, block))
    valid = (ox < x.dim(1).extent() - 2) & (oy < x.dim(2).extent() - 2)
    out[lane, ox, oy, block] = hl.select(valid, result, hl.cast(result.type(), 0))
    constrain_output(out, desc.outputs[0])
    functions = {"columns": columns, "v": v, "acc": acc, "product": product, "half": half, "tile": tile}
    names = named((lane, block, t, cx, cy, a, b, i, j, point, ox, oy))
    return Definition(list(params.values()), [out], names, functions, {"r": r})


def combine(coefficients: Sequence[int], values: Sequence[Any]) -> Any:
    """Return the sum of ``values`` weighted with small integers, without multiplying by 0 or 1."""
    total = None
    for coefficient, value in zip(coefficients, values, strict=True):
        if coefficient == 0:
            continue
        term = value if abs(coefficient) == 1 else value * hl.f32(float(abs(coefficient)))
        if total is None:
            total = term if coefficient > 0 else -term
        else:
            total = total + term if coefficient > 0 else total - term
    return total
