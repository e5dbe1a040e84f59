"""Grouped convolution of blocked values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from opbuild.families.blocked import BIAS, BLOCK, CHANNEL_DIMS, IMAGE, LANE, result
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import Family, Variant, VariantPart, products_of
from opbuild.families.tiles import Pair, Tiles, accumulating_taps, along_rows, fitting, op_type
from opbuild.kernel.opdesc import Dim, OpDesc, Operand

_TABLES = (
    Operand("channel", "int32", (Dim(stride=1),)),
    Operand("group", "int32", CHANNEL_DIMS),
    Operand("segments", "int32", (Dim(stride=1),)),
)


_SPLIT: Tiles = ((6, 1, 1.0), (5, 1, 1.0), (4, 1, 1.02), (3, 1, 1.15), (2, 1, 1.35), (1, 1, 2.5))

TILES: Mapping[int, Tiles] = {
    1: ((14, 1, 1.0), (12, 1, 1.0), (7, 1, 1.05), (8, 1, 1.05), (4, 1, 1.3), (2, 1, 2.0), (1, 1, 4.0)),
    2: _SPLIT,
    4: _SPLIT,
}
"""Register tiles by the registers that a channel block fills. Split ones are from AVX2 on Sapphire Rapids."""

tiles = partial(fitting, TILES)
"""Returns the register tiles that a machine may use, with their costs."""

choose, candidates = along_rows(TILES)


def describe(
    kernel: Pair,
    stride: Pair,
    dilation: Pair,
    epilogue: Epilogue,
    variant: Variant,
    masked: bool,
    step: int = 1,
) -> OpDesc:
    """Return the descriptor; ``masked``: groups end inside blocks. The other arguments are those of ``conv``.

    Operands are x, w, bias, channel, group, segments, the epilogue's, out.
    """
    kx, ky = kernel
    weights = (LANE, Dim(stride=BLOCK), Dim(kx), Dim(ky), Dim())
    inputs = (IMAGE, Operand("w", "float32", weights, "FRACTAL_Z"), BIAS, *_TABLES, *epilogue.inputs(step))
    attrs = {"kernel": kernel, "stride": stride, "dilation": dilation, "masked": masked, **epilogue.attrs}
    out = result(variant["width"], 1, step)
    return FAMILY.desc((op_type(step), *epilogue.op_types), inputs, (out,), attrs, variant, epilogue.impl_mode)


FAMILY = Family(
    "conv_grouped",
    choose,
    attributes=("kernel", "stride", "dilation", "masked", "epilogue"),
    variant={"width": VariantPart(least=1)},
    types=("float32",),
    milliseconds=105,
    work=accumulating_taps(1, 4, 2),  # looking channels up takes half of it
    candidates=candidates,
    products=products_of(1, 4),
)
