"""Grouped convolution of blocked values."""

from __future__ import annotations

from opbuild.families.blocked import BIAS, BLOCK, CHANNEL_DIMS, IMAGE, LANE, result
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import Family, Part, Variant
from opbuild.families.tiles import Pair, plane_variant
from opbuild.kernel.opdesc import Dim, OpDesc, Operand

_TABLES = (
    Operand("channel", "int32", (Dim(stride=1),)),
    Operand("group", "int32", CHANNEL_DIMS),
    Operand("segments", "int32", (Dim(stride=1),)),
)


def describe(
    op_type: str,
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
    return FAMILY.desc((op_type, *epilogue.op_types), inputs, (out,), attrs, variant, epilogue.impl_mode)


choose = plane_variant

FAMILY = Family(
    "conv_grouped",
    choose,
    attributes=("kernel", "stride", "dilation", "masked", "epilogue"),
    variant={"width": Part(least=1), "divide": Part(), "parts": Part()},
    types=("float32",),
    milliseconds=105,
)
