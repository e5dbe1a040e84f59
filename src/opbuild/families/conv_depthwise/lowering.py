"""Convolutions whose every channel is a group of its own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.conv_depthwise import family as depthwise
from opbuild.lowering import conv_weights as packing
from opbuild.lowering import run_time_weights
from opbuild.lowering.context import Lowering
from opbuild.lowering.epilogue import order_recipe
from opbuild.lowering.implementations import serves
from opbuild.lowering.rules.conv import Convolution, emit_images, packed_weights

if TYPE_CHECKING:
    from opbuild.lowering.rules.conv_transpose import Phase


def _is_depthwise(_lowering: Lowering, conv: Convolution) -> bool:
    return conv.is_depthwise


@serves("lowering.Convolution", cost=0.5, where=_is_depthwise)
def lower_depthwise(lowering: Lowering, conv: Convolution) -> None:
    """Emit a depthwise convolution."""
    window = conv.window
    kx, ky = window.kernel
    source, order = lowering.ordered(conv.node.inputs[0])
    known = all(lowering.is_constant(name) for name in (conv.weights, conv.bias) if name)
    if order is not None and not (known and _keeps_order(lowering, conv)):
        source, order = lowering.blocked(conv.node.inputs[0]), None
    variant = lowering.choose(depthwise.FAMILY, window.out[0])
    desc = depthwise.describe(window.kernel, window.stride, window.dilation, conv.epilogue, variant)
    shape, recipe = (blocks(conv.outputs), ky, kx, BLOCK), f"depthwise{order_recipe(order)}"
    pack = partial(packing.pack_depthwise, order=order)
    weights = packed_weights(lowering, conv, recipe, pack, shape, run_time_weights.DEPTHWISE)
    emit_images(lowering, conv, desc, weights, source=source, order=order)


def _keeps_order(lowering: Lowering, conv: Convolution) -> bool:
    """Return whether a depthwise convolution may write channels in the order in which it reads them.

    It may if nothing else depends on the channel, and should if only grouped convolutions, which look channels up,
    read the result.
    """
    name = conv.node.outputs[0]
    readers = lowering.consumers.get(name, [])
    if not conv.epilogue.has_scalars_only or name in lowering.graph.outputs:
        return False
    return all(reader.op_type == "Conv" and int(reader.attrs.get("group", 1)) > 1 for reader in readers)


def _has_channels(_lowering: Lowering, phase: Phase) -> bool:
    return phase.conv.is_depthwise


@serves("lowering.ConvPhase", cost=0.5, where=_has_channels)
def lower_phase(lowering: Lowering, phase: Phase) -> None:
    """Emit a phase of a transposed depthwise convolution."""
    kernel, conv = phase.kernel, phase.conv
    variant = lowering.choose(depthwise.FAMILY, phase.x.count)
    desc = depthwise.describe(kernel, (1, 1), phase.dilation, conv.epilogue, variant, conv.stride[0])
    weights = phase.weights(lowering, (blocks(conv.outputs), kernel[1], kernel[0], BLOCK))
    phase.emit(lowering, desc, weights)
