"""Convolution of a plain value with few channels into a blocked one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from opbuild.families.blocked import BIAS, BLOCK, LANE, blocks, result
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import Family, Variant, VariantPart, first_of, products_of
from opbuild.families.tiles import SPLIT_TILES, Pair, Tiles, accumulating_taps, fitting, ranked
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine

MOST_CHANNELS = 8
"""Up to here a plain input is read as it lies; more channels are worth a conversion into blocks."""

TILES: Mapping[int, Tiles] = {
    1: (
        (7, 2, 1.0),
        (8, 2, 1.01),
        (4, 2, 1.05),
        (7, 1, 1.03),
        (8, 1, 1.04),
        (4, 1, 1.3),
        (2, 2, 1.6),
        (1, 2, 3.0),
        (2, 1, 2.5),
        (1, 1, 5.0),
    ),
    2: SPLIT_TILES,
    4: SPLIT_TILES,
}
"""Register tiles by the registers that a channel block fills."""

tiles = partial(fitting, TILES)
"""Returns the register tiles that a machine may use, with their costs."""


def candidates(width: int, outputs: int, machine: Machine) -> list[Variant]:
    """Return the variants among which tuning searches, the first of which is chosen."""
    legal = ranked(tiles(machine), width, blocks(outputs))
    return [{"width": tile[0], "blocks": tile[1], "rows": 8} for tile in legal]


choose = first_of(candidates)


def describe(kernel: Pair, stride: Pair, dilation: Pair, before: Pair, epilogue: Epilogue, variant: Variant) -> OpDesc:
    """Return the descriptor; pairs are (x, y), ``before`` is padding. Operands x, w, bias, the epilogue's, out."""
    kx, ky = kernel
    weights = (LANE, Dim(kx, BLOCK), Dim(ky, BLOCK * kx), Dim(stride=BLOCK * kx * ky), Dim())
    image = Operand("x", "float32", (Dim(stride=1, min=1), Dim(min=1), Dim()), "NCHW")
    inputs = (image, Operand("w", "float32", weights, "FRACTAL_Z"), BIAS, *epilogue.inputs())
    out = result(variant["width"], variant["blocks"])
    attrs = {"kernel": kernel, "stride": stride, "dilation": dilation, "before": before, **epilogue.attrs}
    return FAMILY.desc(("Conv", *epilogue.op_types), inputs, (out,), attrs, variant, epilogue.impl_mode)


FAMILY = Family(
    "conv_first",
    choose,
    attributes=("kernel", "stride", "dilation", "before", "epilogue"),
    variant={"width": VariantPart(least=1), "blocks": VariantPart(least=1), "rows": VariantPart()},
    types=("float32",),
    milliseconds=120,
    work=accumulating_taps(1, 4, 1.5),  # copying rows is a third of it
    candidates=candidates,
    products=products_of(1, 4),
)
