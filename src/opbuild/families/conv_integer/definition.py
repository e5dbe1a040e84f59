"""Convolution of blocked 8-bit numbers: the definition.

``x (16, OW, OH, kx, ky, C1)`` uint8 is what each output reads at each tap; it overlaps itself in memory, as that of
``conv`` does. Products of ``adjacent`` neighbouring channels are added up at once, which is what instructions for small
integers do: ``w (adjacent, 16 out, steps, kx, ky, C1 in, C1 out)``; ``steps`` times ``adjacent`` is 16, or less where
one block of inputs has few channels. ``bias (16, C1 out)`` int32; ``out (16, OW, OH, C1 out)``.

Sums are exact: they are kept in int32, and lowering asks for no convolution whose sums could be greater.
"""

from __future__ import annotations

from dataclasses import replace

import halide as hl

from opbuild.backend.halide.definition import Definition, parameter, variables
from opbuild.backend.halide.epilogue import stored
from opbuild.kernel.opdesc import OpDesc

INT32 = hl.Int(32)


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``kernel`` as (x, y), ``adjacent``, ``steps`` and ``epilogue``."""
    kernel, adjacent, steps = (desc.attrs[name] for name in ("kernel", "adjacent", "steps"))
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, w, bias = params["x"], params["w"], params["bias"]
    lane, ox, oy, block = variables("lane ox oy block")
    extents = (adjacent, steps, kernel[0], kernel[1], x.dim(5).extent())
    r = hl.RDom([(0, extent) for extent in extents], "r")
    acc = hl.Func("acc")
    acc[lane, ox, oy, block] = bias[lane, block]
    acc[lane, ox, oy, block] += hl.cast(INT32, x[r[0] + adjacent * r[1], ox, oy, r[2], r[3], r[4]]) * hl.cast(
        INT32, w[r[0], lane, r[1], r[2], r[3], r[4], block]
    )
    return replace(stored(desc, params, [lane, ox, oy, block], {"acc": acc}, r), dots=True)
