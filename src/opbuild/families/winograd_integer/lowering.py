"""Convolutions of 3 x 3 of 8-bit numbers by Winograd's algorithm."""

from __future__ import annotations

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.winograd.family import KERNEL, rounded
from opbuild.families.winograd_integer import family as winograd
from opbuild.lowering import conv_weights as packing
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import serves
from opbuild.lowering.operands import Blocked, OperandRef, Plain
from opbuild.lowering.rules.conv_integer import IntegerConvolution, begin, operands_of, result_of
from opbuild.lowering.windows import Pair


def _is_three_by_three(_lowering: Lowering, conv: IntegerConvolution) -> bool:
    window = conv.window
    geometry = (window.kernel, window.stride, window.dilation, conv.groups)
    return geometry == (KERNEL, (1, 1), (1, 1), 1)


@serves("lowering.IntegerConvolution", cost=0.5, where=_is_three_by_three)
def lower_by_tiles(lowering: Lowering, conv: IntegerConvolution) -> bool:
    """Emit one call for each image, if that is worth it.

    The output is rounded up to whole chunks, and what it reads with it.
    """
    variant = lowering.choose(winograd.FAMILY, conv.window.out, conv.inputs, conv.outputs)
    if variant is None:
        return False
    source, padding = begin(lowering, conv)
    window, (width, height) = conv.window, rounded(variant, conv.window.out)
    desc = winograd.describe(conv.epilogue, result_of(lowering, conv), variant)
    left, top = window.before
    over = (max(0, width + 2 - left - window.size[0]), max(0, height + 2 - top - window.size[1]))
    source.storage.grow_halo(left, top, *over)
    shape = (winograd.POINTS, blocks(conv.outputs), blocks(conv.inputs), BLOCK // 2, BLOCK, 2)
    weights = lowering.packed(
        conv.made_of, "integer winograd", shape, "int16", lambda: packing.pack_integer_winograd(conv.weights)
    )
    extra, target, bias = operands_of(lowering, conv, padding)
    for image in lowering.images(source.shape[0]):
        others = (_rounded(each, image, window.out, (width, height)) for each in (bias, *extra, target))
        lowering.emit(desc, [window.read(source, image), weights, *others], conv.node)
    return True


def _rounded(operand: Plain | Blocked, image: int, out: Pair, whole: Pair) -> OperandRef:
    """Return an operand of an image, a blocked one with extents rounded up to ``whole``."""
    if isinstance(operand, Plain):
        return operand
    operand.storage.grow_halo(0, 0, whole[0] - out[0], whole[1] - out[1])
    return operand.window(image, 0, 0, *whole)
