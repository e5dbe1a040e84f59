"""Depthwise convolution of blocked values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from opbuild.families.blocked import BIAS, BLOCK, IMAGE, LANE, result
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import Family, Variant, VariantPart, products_of
from opbuild.families.tiles import Pair, Tiles, accumulating_taps, along_rows, fitting, op_type
from opbuild.kernel.opdesc import Dim, OpDesc, Operand

_SPLIT: Tiles = ((4, 1, 1.0), (2, 1, 1.08), (3, 1, 1.08), (1, 1, 1.5))

TILES: Mapping[int, Tiles] = {
    1: ((14, 1, 1.0), (7, 1, 1.05), (8, 1, 1.05), (4, 1, 1.3), (2, 1, 2.0), (1, 1, 4.0)),
    2: _SPLIT,
    4: _SPLIT,
}
"""Register tiles by the registers that a channel block fills. With AVX2 on Sapphire Rapids, 5 and
more positions take 1.2 to 1.4 of the time."""

tiles = partial(fitting, TILES)
"""Returns the register tiles that a machine may use, with their costs."""

choose, candidates = along_rows(TILES)


def describe(kernel: Pair, stride: Pair, dilation: Pair, epilogue: Epilogue, variant: Variant, step: int = 1) -> OpDesc:
    """Return the descriptor; the arguments are those of ``conv``. Operands x, w, bias, the epilogue's, out."""
    kx, ky = kernel
    weights = (LANE, Dim(kx, BLOCK), Dim(ky, BLOCK * kx), Dim(stride=BLOCK * kx * ky))
    inputs = (IMAGE, Operand("w", "float32", weights, "FRACTAL_Z"), BIAS, *epilogue.inputs(step))
    attrs = {"kernel": kernel, "stride": stride, "dilation": dilation, **epilogue.attrs}
    out = result(variant["width"], 1, step)
    return FAMILY.desc((op_type(step), *epilogue.op_types), inputs, (out,), attrs, variant, epilogue.impl_mode)


FAMILY = Family(
    "conv_depthwise",
    choose,
    attributes=("kernel", "stride", "dilation", "epilogue"),
    variant={"width": VariantPart(least=1)},
    types=("float32",),
    milliseconds=160,
    work=accumulating_taps(1, 3),
    candidates=candidates,
    products=products_of(1, 3),
)
