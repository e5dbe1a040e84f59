"""Depthwise convolution of blocked 8-bit numbers."""

from __future__ import annotations

from opbuild.families.blocked import BLOCK, BLOCKED_DIMS, CHANNEL_DIMS, LANE, result
from opbuild.families.conv_depthwise import family as depthwise
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import Family, Variant, VariantPart, products_of
from opbuild.families.tiles import Pair, accumulating_taps
from opbuild.kernel.opdesc import Dim, OpDesc, Operand

MOST_TAPS = 2**24 // (255 * 255) - 1
"""Taps of the largest kernel whose sums float32 holds exactly, whatever the numbers."""


def describe(kernel: Pair, stride: Pair, dilation: Pair, epilogue: Epilogue, out: str, variant: Variant) -> OpDesc:
    """Return the descriptor; pairs are (x, y). Operands x, w, bias, the epilogue's, out of element type ``out``."""
    kx, ky = kernel
    weights = (LANE, Dim(kx, BLOCK), Dim(ky, BLOCK * kx), Dim(stride=BLOCK * kx * ky))
    inputs = (
        Operand("x", "uint8", BLOCKED_DIMS, "NC1HWC0"),
        Operand("w", "int16", weights, "FRACTAL_Z"),
        Operand("bias", "int32", CHANNEL_DIMS, "NC1HWC0"),
        *epilogue.inputs(),
    )
    attrs = {"kernel": kernel, "stride": stride, "dilation": dilation, **epilogue.attrs}
    target = result(variant["width"], 1, dtype=out)
    return FAMILY.desc(("ConvInteger", *epilogue.op_types), inputs, (target,), attrs, variant, epilogue.impl_mode)


FAMILY = Family(
    "conv_integer_depthwise",
    depthwise.choose,
    attributes=("kernel", "stride", "dilation", "epilogue"),
    variant={"width": VariantPart(least=1)},
    types=("uint8",),
    milliseconds=180,
    work=accumulating_taps(1, 3, 2),  # widening the numbers is half of it
    candidates=depthwise.candidates,
    products=products_of(1, 3),
)
