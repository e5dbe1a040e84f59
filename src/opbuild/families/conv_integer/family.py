"""Convolution of blocked 8-bit numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

from opbuild.families.blocked import BLOCK, CHANNEL_DIMS, LANE, blocks, result
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import Family, Variant, VariantPart, elements, first_of
from opbuild.families.layouts import PAIR, is_flat
from opbuild.families.tiles import Pair, Tiles, accumulating_taps, fitting, ranked
from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand
from opbuild.platform.records import replace
from opbuild.target.machine import Machine

_SPLIT: Tiles = (
    (6, 1, 1.0),
    (5, 1, 1.04),
    (4, 1, 1.05),
    (3, 1, 1.1),
    (2, 2, 1.15),
    (2, 1, 1.2),
    (1, 2, 1.3),
    (1, 1, 2.0),
)

TILES: Mapping[int, Tiles] = {
    1: (
        (14, 2, 1.0),
        (7, 3, 1.05),
        (7, 4, 1.05),
        (7, 2, 1.07),
        (8, 2, 1.07),
        (4, 4, 1.12),
        (4, 2, 1.3),
        (7, 1, 1.4),
        (8, 1, 1.4),
        (4, 1, 1.7),
        (2, 2, 1.9),
        (1, 4, 2.2),
        (1, 2, 3.0),
        (2, 1, 2.5),
        (1, 1, 5.0),
    ),
    2: _SPLIT,
    4: _SPLIT,
}
"""Register tiles by the registers that sums of a channel block fill. From 1 x 1 and 3 x 3 on Sapphire Rapids: 14 x 2
reaches 600 to 690 G operations a second of one core, four times what float32 does."""

SHORT = 64
"""Instructions for a sum up to which ``SHORT_TILES`` count: what follows takes about as long as adding up."""

SHORT_TILES: Mapping[Pair, float] = {(4, 2): 0.95, (2, 4): 0.95, (4, 4): 0.97, (7, 2): 0.97, (8, 2): 0.97}
"""Other costs of tiles for short sums where a block fills one register. What is done with a small tile's sums runs
beside the products of the next one; a large tile's is as much as a core looks ahead. On Zen 4, with a residual, 1 x 1
with 64 inputs in 2 x 2, 4 x 2 and 7 x 2: 0.91, 0.95 and 0.97 of the time of 14 x 2; with 256: 0.98, 0.98, 1.0. 2 x 2 is
left to tuning: four sums keep Zen 4 busy, and not Intel's cores."""

MOST_HALF = (2**15 - 1) // (2 * 255)
"""Distance of weights from 0 up to which two products fit 16 bits, whatever the inputs: that of 7 bits, to which
quantisation for machines without such an instruction for more reduces them."""

MOST_PRODUCTS = 2**31 // (255 * 255) - 1
"""Products that a sum may have: the sum of so many cannot leave int32, whatever the numbers."""

tiles = partial(fitting, TILES)
"""Returns the register tiles that a machine may use, with their costs."""


def candidates(out: Pair, outputs: int, steps: int, machine: Machine) -> list[Variant]:
    """Return the variants among which tuning searches, the cheapest, which is chosen, first.

    Args:
        out: Extents of the output (x, y).
        outputs: Output channels.
        steps: Instructions that add up one sum.
        machine: What runs it.
    """
    costs = tiles(machine)
    if steps <= SHORT and machine.vectors(BLOCK) == 1:
        costs = tuple((*tile[:2], SHORT_TILES.get(tile[:2], tile[2])) for tile in costs)
    positions = prod(out) if machine.dot == PAIR else out[0]
    return [{"width": width, "blocks": wide} for width, wide in ranked(costs, positions, blocks(outputs))]


choose = first_of(candidates)


def in_halves(largest: int, machine: Machine) -> bool:
    """Return whether products are added up in 16 bits first, for weights of which the largest is so far from 0."""
    return machine.halves and machine.dot == PAIR and largest <= MOST_HALF


def adjacent(dtype: str, halves: bool, machine: Machine) -> int:
    """Return of how many neighbouring input channels a machine adds up the products at once.

    Args:
        dtype: The type of the weights, ``int8`` or ``int16``.
        halves: Whether they are added up in 16 bits first.
        machine: The machine.
    """
    return 4 if halves else machine.dot if dtype == "int8" else PAIR


def describe(
    kernel: Pair,
    stride: Pair,
    dilation: Pair,
    weights: tuple[str, int, int],
    halves: bool,
    epilogue: Epilogue,
    out: str,
    variant: Variant,
) -> OpDesc:
    """Return the descriptor; operands x, w, bias, the epilogue's, out.

    Args:
        kernel: Taps (x, y).
        stride: Input positions between outputs (x, y).
        dilation: Input positions between taps (x, y).
        weights: Their type, ``adjacent`` and ``steps``, as the definition has them.
        halves: Whether products are added up in 16 bits first.
        epilogue: What is applied to the sums, which are int32.
        out: The element type of the result.
        variant: Of those that ``choose`` returns.
    """
    (kx, ky), (dtype, adjacent, steps) = kernel, weights
    taps = BLOCK * adjacent * steps
    filters = (
        Dim(adjacent, 1),
        Dim(BLOCK, adjacent),
        Dim(steps, BLOCK * adjacent),
        Dim(kx, taps),
        Dim(ky, taps * kx),
        Dim(stride=taps * kx * ky),
        Dim(),
    )
    along = BLOCK * dilation[0] if kx > 1 else FREE
    read = (LANE, Dim(stride=BLOCK * stride[0]), Dim(), Dim(stride=along), Dim(), Dim())
    inputs = (
        Operand("x", "uint8", read, "NC1HWC0"),
        Operand("w", dtype, filters, "FRACTAL_Z"),
        Operand("bias", "int32", CHANNEL_DIMS, "NC1HWC0"),
        *epilogue.inputs(),
    )
    attrs = {"kernel": kernel, "adjacent": adjacent, "steps": steps, **epilogue.attrs}
    attrs |= {"halves": True} if halves else {}
    target = result(1 if is_flat(adjacent, halves) else variant["width"], variant["blocks"], dtype=out)
    return FAMILY.desc(("ConvInteger", *epilogue.op_types), inputs, (target,), attrs, variant, epilogue.impl_mode)


def _opened(_desc: OpDesc, operand: Operand, number: int, dim: Dim) -> Dim:
    return replace(dim, stride=FREE) if operand.name == "x" and number > 0 else dim


FAMILY = Family(
    "conv_integer",
    choose,
    attributes=("kernel", "adjacent", "steps", "epilogue", "halves"),
    variant={"width": VariantPart(least=1), "blocks": VariantPart(least=1)},
    types=("uint8",),
    milliseconds=150,
    opened=_opened,
    work=accumulating_taps(2, 6, overlaps=True),
    candidates=candidates,
    products=lambda dims, out: elements(out) * dims[1][0][0] * elements(dims[1][2:6]),
)
