"""Convolutions of several groups of channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.conv_grouped import family as grouped
from opbuild.graph.types import Array
from opbuild.lowering import conv_weights as packing
from opbuild.lowering import run_time_weights
from opbuild.lowering.context import Lowering
from opbuild.lowering.epilogue import order_recipe
from opbuild.lowering.implementations import serves
from opbuild.lowering.operands import Plain
from opbuild.lowering.rules.conv import Convolution, emit_images, packed_weights

if TYPE_CHECKING:
    from opbuild.lowering.rules.conv_transpose import Phase


def _is_grouped(_lowering: Lowering, conv: Convolution) -> bool:
    return conv.groups > 1


@serves("lowering.Convolution", where=_is_grouped)
def lower_grouped(lowering: Lowering, conv: Convolution) -> None:
    """Emit a convolution of groups; the channels of its input may lie in any order."""
    window = conv.window
    kx, ky = window.kernel
    source, order = lowering.ordered(conv.node.inputs[0])
    variant = lowering.choose(grouped.FAMILY, window.out[0])
    masked = conv.outputs // conv.groups % BLOCK != 0
    desc = grouped.describe(window.kernel, window.stride, window.dilation, conv.epilogue, variant, masked)
    weights = packed_weights(
        lowering,
        conv,
        "grouped",
        packing.pack_grouped,
        (blocks(conv.outputs), ky, kx, conv.inputs // conv.groups, BLOCK),
        run_time_weights.GROUPED,
    )
    tables = _tables(lowering, conv.inputs, conv.outputs, conv.groups, order)
    emit_images(lowering, conv, desc, weights, *tables, source=source)


def _tables(
    lowering: Lowering, inputs: int, outputs: int, groups: int, order: Array | None = None
) -> tuple[Plain, Plain, Plain]:
    """Return the constants that say where the channels of groups lie: operands channel, group and segments."""
    lanes, segments = packing.group_lanes(outputs, groups)
    recipe = f"{outputs} {groups}"
    places = np.arange(inputs, dtype=np.int32) if order is None else order
    return (
        lowering.packed((), f"places {inputs}{order_recipe(order)}", (inputs,), "int32", lambda: places),
        lowering.packed((), f"groups {recipe}", lanes.shape, "int32", lambda: lanes),
        lowering.packed((), f"segments {recipe}", segments.shape, "int32", lambda: segments),
    )


def _has_groups(_lowering: Lowering, phase: Phase) -> bool:
    return phase.conv.groups > 1


@serves("lowering.ConvPhase", where=_has_groups)
def lower_phase(lowering: Lowering, phase: Phase) -> None:
    """Emit a phase of a transposed convolution of groups."""
    kernel, conv = phase.kernel, phase.conv
    variant = lowering.choose(grouped.FAMILY, phase.x.count)
    masked = conv.outputs // conv.groups % BLOCK != 0
    desc = grouped.describe(kernel, (1, 1), phase.dilation, conv.epilogue, variant, masked, conv.stride[0])
    tables = _tables(lowering, conv.inputs, conv.outputs, conv.groups)
    shape = (blocks(conv.outputs), kernel[1], kernel[0], conv.inputs // conv.groups, BLOCK)
    phase.emit(lowering, desc, phase.weights(lowering, shape), *tables)
