"""Convolution of blocked 8-bit numbers: the definition.

``x (16, OW, OH, kx, ky, C1)`` uint8 is what each output reads at each tap; it overlaps itself in memory, as that of
``conv`` does. Products of ``adjacent`` neighbouring channels are added up at once, which is what instructions for small
integers do: ``w (adjacent, 16 out, steps, kx, ky, C1 in, C1 out)``; ``steps`` times ``adjacent`` is 16, or less where
one block of inputs has few channels. ``bias (16, C1 out)`` int32; ``out (16, OW, OH, C1 out)``. Where two are added up
at once, which are 16 bits wide, inputs are ``left``, a copy of that width that the schedule keeps. With the attribute
``halves`` sums of two products fit 16 bits, whatever the inputs: they are added up so first, and two such sums next.

Sums are exact: they are kept in int32, and lowering asks for no convolution whose sums could be greater.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, parameter, variables
from opbuild.backend.halide.epilogue import stored
from opbuild.kernel.opdesc import OpDesc

INT16, INT32 = hl.Int(16), hl.Int(32)

PAIR = 2
"""Products of 16 bits that one instruction adds up."""


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``kernel`` as (x, y), ``adjacent``, ``steps``, ``epilogue``, perhaps ``halves``."""
    kernel, adjacent, steps = (desc.attrs[name] for name in ("kernel", "adjacent", "steps"))
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, w, bias = params["x"], params["w"], params["bias"]
    index = lane, ox, oy, block = variables("lane ox oy block")
    halves = bool(desc.attrs.get("halves"))
    extents = (adjacent // PAIR if halves else adjacent, steps, kernel[0], kernel[1], x.dim(5).extent())
    r = hl.RDom([(0, extent) for extent in extents], "r")
    taps = (r[2], r[3], r[4])
    acc = hl.Func("acc")
    acc[index] = bias[lane, block]
    functions = {"acc": acc}
    if halves:
        functions["halves"] = sums = _halves(x, w, adjacent)
        acc[index] += hl.cast(INT32, sums[(r[0], *index, r[1], *taps)])
    else:
        read = x
        if adjacent == PAIR:
            functions["left"] = read = _widened(x)
        left = read[(r[0] + adjacent * r[1], ox, oy, *taps)]
        acc[index] += hl.cast(INT32, left) * hl.cast(INT32, w[(r[0], lane, r[1], *taps, block)])
    return replace(stored(desc, params, list(index), functions, r), dots=True)


def _widened(x: Any) -> Any:
    """Return the input in 16 bits."""
    left, place = hl.Func("left"), variables("lane ox oy kx ky block")
    left[place] = hl.cast(INT16, x[place])
    return left


def _halves(x: Any, w: Any, adjacent: int) -> Any:
    """Return sums of two products in 16 bits, which hold them: that the addition saturates names the instruction."""
    halves, byte = hl.Func("halves"), hl.RDom([(0, PAIR)], "byte")
    pair, lane, ox, oy, block, step, *taps = place = variables("pair lane ox oy block step kx ky c")
    number = byte.x + PAIR * pair
    left, right = x[(number + adjacent * step, ox, oy, *taps)], w[(number, lane, step, *taps, block)]
    halves[place] = hl.cast(INT16, 0)
    halves[place] = hl.saturating_add(halves[place], hl.cast(INT16, left) * hl.cast(INT16, right))
    return halves
