"""Depthwise convolution of blocked values."""

from __future__ import annotations

from opbuild.families.blocked import BIAS, BLOCK, IMAGE, LANE, result
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import Family, Part, Variant
from opbuild.families.tiles import Pair, plane_variant
from opbuild.kernel.opdesc import Dim, OpDesc, Operand


def describe(kernel: Pair, stride: Pair, dilation: Pair, epilogue: Epilogue, variant: Variant) -> OpDesc:
    """Return the descriptor; pairs are (x, y). Operands x, w, bias, the epilogue's, out."""
    kx, ky = kernel
    weights = (LANE, Dim(kx, BLOCK), Dim(ky, BLOCK * kx), Dim(stride=BLOCK * kx * ky))
    inputs = (IMAGE, Operand("w", "float32", weights, "FRACTAL_Z"), BIAS, *epilogue.inputs())
    attrs = {"kernel": kernel, "stride": stride, "dilation": dilation, **epilogue.attrs}
    out = result(variant["width"], 1)
    return FAMILY.desc(("Conv", *epilogue.op_types), inputs, (out,), attrs, variant, epilogue.impl_mode)


choose = plane_variant

FAMILY = Family(
    "conv_depthwise",
    choose,
    attributes=("kernel", "stride", "dilation", "epilogue"),
    variant={"width": Part(least=1), "divide": Part(), "parts": Part()},
    types=("float32",),
    milliseconds=160,
)
