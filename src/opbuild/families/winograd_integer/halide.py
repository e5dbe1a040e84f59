"""Winograd's convolution, F(2 x 2, 3 x 3), of blocked 8-bit numbers.

``x (16, W + 2, H + 2, C1)`` uint8 is a window as ``winograd`` reads it. ``u (2, 16 out, 8, C1 in, C1 out, 16)`` int16
are the weights transformed by twice Winograd's matrix on either side, which leaves whole numbers, neighbouring input
channels adjacent as the instruction for two products takes them. ``bias (16, C1 out)`` int32; ``out (16, OW, OH, C1
out)`` has extents rounded up to whole chunks of tiles, and zeros beyond the valid ones.

Sums are exact. A transformed input is at most four bytes, a weight at most nine: both fit 16 bits. The output's
transform gives four times the sum; its parts may leave int32, where they wrap, but it does not
(``family.MOST_INPUTS``).

Schedule: that of ``winograd``, with two products an instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, parameter
from opbuild.families.blocked import BLOCK
from opbuild.families.winograd import halide as winograd
from opbuild.families.winograd.halide import transformed
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

INT16, INT32 = hl.Int(16), hl.Int(32)

SHIFT = 2
"""Twice the matrix on either side: four times the sum."""


def define(desc: OpDesc) -> Definition:
    """Define it, as ``winograd`` is defined: with the same names, for its schedule."""
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, u = params["x"], params["u"]

    def accumulate(acc: Any, place: Any, read: Callable[[Any, Any], Any]) -> Any:
        lane, block, _, point, *_ = place
        r = hl.RDom([(0, 2), (0, BLOCK // 2), (0, x.dim(3).extent())], "r")
        acc[place] = 0
        right = hl.cast(INT32, u[r[0], lane, r[1], r[2], block, point])
        acc[place] += hl.cast(INT32, read(r[0] + 2 * r[1], r[2])) * right
        return r

    return replace(transformed(desc, params, INT16, accumulate, lambda total: total >> SHIFT), dots=True)


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``, whose parts ``winograd``'s record describes."""
    winograd.schedule(definition, desc, machine)
    r, (lane, block, t) = definition.domains["r"], (definition.variables[name] for name in ("lane", "block", "t"))
    definition.functions["acc"].update().reorder(r[0], lane, block, t, r[1], r[2]).atomic().vectorize(r[0])
