"""Convolutions of 3 x 3 by Winograd's algorithm."""

from __future__ import annotations

from functools import partial
from math import prod

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.family import Variant
from opbuild.families.weight_blocks.family import LEAST_POSITIONS
from opbuild.families.winograd import family as winograd
from opbuild.graph.constants import factors_of
from opbuild.graph.extents import example_value
from opbuild.graph.factors import MODERATE, reach
from opbuild.kernel.opdesc import HIGH_PRECISION
from opbuild.lowering import conv_weights as packing
from opbuild.lowering import run_time_weights
from opbuild.lowering.context import Lowering
from opbuild.lowering.epilogue import references
from opbuild.lowering.implementations import serves
from opbuild.lowering.operands import Blocked, OperandRef, Plain
from opbuild.lowering.rules.conv import Convolution, keep_unpacked, packed_weights, result_of


def _is_three_by_three(_lowering: Lowering, conv: Convolution) -> bool:
    window = conv.window
    is_plain = window.stride == (1, 1) and window.dilation == (1, 1) and conv.groups == 1
    return is_plain and window.kernel == winograd.KERNEL


@serves("lowering.Convolution", cost=0.5, where=_is_three_by_three)
def lower_by_tiles(lowering: Lowering, conv: Convolution) -> bool:
    """Emit a convolution by Winograd's algorithm; return whether it is worth it."""
    return _by_tiles(lowering, conv, turned=False)


@serves("lowering.TurnedConvolution", where=_is_three_by_three)
def lower_turned(lowering: Lowering, conv: Convolution) -> bool:
    """Emit a convolution whose weights, of run time, are a transposed one's; return whether it is worth it."""
    return _by_tiles(lowering, conv, turned=True)


def _by_tiles(lowering: Lowering, conv: Convolution, *, turned: bool) -> bool:
    window, known = conv.window, lowering.is_constant(conv.weights) and not turned
    variant = _winograd_variant(lowering, conv)
    if variant is None or (known and not _are_ordinary(lowering, conv.weights)):
        return False
    tile = variant["tile"]
    if known:
        shape = ((tile + 2) ** 2, blocks(conv.outputs), blocks(conv.inputs) * BLOCK, BLOCK)
        pack = partial(packing.pack_winograd, tile=tile)
        weights = packed_weights(lowering, conv, f"winograd {tile}", pack, shape, ())
        keep_unpacked(lowering, conv, winograd.FAMILY.name, weights)
    else:
        if example_value(prod(window.out) * conv.images) < LEAST_POSITIONS:
            return False
        found = run_time_weights.in_blocks(lowering, conv.weights, conv.node.name, turned=turned, tile=tile)
        if found is None:
            return False
        weights = found
    _winograd(lowering, conv, variant, weights)
    return True


def _are_ordinary(lowering: Lowering, weights: str) -> bool:
    """Return whether weights are no sign of inputs near the greatest number, of which the transform makes 100 times."""
    return reach(1 / MODERATE, *factors_of(lowering.graph.constants, weights))


def _winograd_variant(lowering: Lowering, conv: Convolution) -> Variant | None:
    """Return Winograd's variant, or None where the direct convolution is faster."""
    precise = lowering.impl_mode(conv.node) == HIGH_PRECISION
    found: Variant | None = lowering.choose(winograd.FAMILY, conv.window.out, conv.inputs, conv.outputs, precise)
    return found


def _winograd(lowering: Lowering, conv: Convolution, variant: Variant, weights: Plain) -> None:
    window, desc = conv.window, winograd.describe(conv.epilogue, variant)
    width, height = winograd.rounded(variant, window.out)
    left, top = window.before
    source = lowering.blocked(
        conv.node.inputs[0],
        (left, top, max(0, width + 2 - left - window.size[0]), max(0, height + 2 - top - window.size[1])),
    )
    slack = (0, 0, width - window.out[0], height - window.out[1])

    def rounded(value: Blocked, image: int) -> OperandRef:
        value.storage.grow_halo(*slack)
        return value.window(image, 0, 0, width, height)

    extra = [
        references(conv.epilogue, lowering, conv.outputs, image, partial(rounded, image=image))
        for image in lowering.images(conv.images)
    ]
    bias, result = result_of(lowering, conv)
    for image, more in zip(lowering.images(conv.images), extra, strict=True):
        lowering.emit(desc, [window.read(source, image), weights, bias, *more, rounded(result, image)], conv.node)
