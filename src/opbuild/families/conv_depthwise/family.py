"""Depthwise convolution of blocked values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from opbuild.families.blocked import BIAS, BLOCK, IMAGE, LANE, result
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import Dims, Family, Variant, VariantPart, products_of
from opbuild.families.tiles import Pair, Tiles, accumulating, cheapest, fitting, op_type, ranked
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine

_SPLIT: Tiles = ((4, 1, 1.0), (2, 1, 1.08), (3, 1, 1.08), (1, 1, 1.5))

TILES: Mapping[int, Tiles] = {
    1: ((14, 1, 1.0), (7, 1, 1.05), (8, 1, 1.05), (4, 1, 1.3), (2, 1, 2.0), (1, 1, 4.0)),
    2: _SPLIT,
    4: _SPLIT,
}
"""Register tiles by the registers that a channel block fills. With AVX2 on Sapphire Rapids, 5 and
more positions take 1.2 to 1.4 of the time."""


def tiles(machine: Machine) -> Tiles:
    """Return the register tiles that a machine may use, with their costs."""
    return fitting(TILES, machine)


def choose(width: int, machine: Machine) -> Variant:
    """Return the variant for rows of ``width`` positions: how many of them are a register tile."""
    return {"width": cheapest(tiles(machine), width, 1)[0]}


def candidates(width: int, machine: Machine) -> list[Variant]:
    """Return the variants among which tuning searches."""
    return [{"width": tile[0]} for tile in ranked(tiles(machine), width, 1)]


def describe(kernel: Pair, stride: Pair, dilation: Pair, epilogue: Epilogue, variant: Variant, step: int = 1) -> OpDesc:
    """Return the descriptor; the arguments are those of ``conv``. Operands x, w, bias, the epilogue's, out."""
    kx, ky = kernel
    weights = (LANE, Dim(kx, BLOCK), Dim(ky, BLOCK * kx), Dim(stride=BLOCK * kx * ky))
    inputs = (IMAGE, Operand("w", "float32", weights, "FRACTAL_Z"), BIAS, *epilogue.inputs(step))
    attrs = {"kernel": kernel, "stride": stride, "dilation": dilation, **epilogue.attrs}
    out = result(variant["width"], 1, step)
    return FAMILY.desc((op_type(step), *epilogue.op_types), inputs, (out,), attrs, variant, epilogue.impl_mode)


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds that a convolution takes on one core."""
    return accumulating(desc, shapes, machine, prod(extent for extent, _ in shapes[1][1:3]))


FAMILY = Family(
    "conv_depthwise",
    choose,
    attributes=("kernel", "stride", "dilation", "epilogue"),
    variant={"width": VariantPart(least=1)},
    types=("float32",),
    milliseconds=160,
    work=work,
    candidates=candidates,
    products=products_of(1, 3),
)
