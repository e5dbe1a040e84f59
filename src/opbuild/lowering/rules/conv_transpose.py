"""ConvTranspose: each phase of the output is a convolution of stride 1.

With stride s, the outputs whose position is p modulo s read every s-th tap only. Such a phase is an ordinary
convolution with those taps, reversed, that writes every s-th position; so a transposed convolution needs no kernel of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import gcd

import numpy as np

from opbuild.families.epilogue import Epilogue
from opbuild.graph.shape_rules import ShapeCall
from opbuild.graph.shape_rules_window import transposed_range
from opbuild.graph.types import Array, Node
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering import conv_weights as packing
from opbuild.lowering import run_time_weights
from opbuild.lowering.context import Lowering
from opbuild.lowering.epilogue import epilogue_of, pack_channels, padding, references
from opbuild.lowering.implementations import ASKED, NotServedError, ask, serves
from opbuild.lowering.operands import Blocked, BlockedPhase, BlockedTaps, OperandRef, Plain
from opbuild.lowering.rules.conv import Convolution, operands_of
from opbuild.lowering.strided import narrowed, viewed_as
from opbuild.lowering.windows import ConvolvedChannels, Pair, Window, image_shape, spatial_pair
from opbuild.platform.records import dataclass


@dataclass(frozen=True)
class PhaseAxis:
    """One phase in one direction.

    Attributes:
        start: First output position.
        count: Output positions.
        taps: Indices of the taps it reads, in the order in which the convolution reads them.
        dilation: Input positions between two taps.
        first: Input position of the first tap for the first output; may be negative.
    """

    start: int
    count: int
    taps: tuple[int, ...]
    dilation: int
    first: int

    @property
    def span(self) -> int:
        """Input positions from the first tap of the first output to the last tap of the last output."""
        return self.count + (len(self.taps) - 1) * self.dilation

    def reach(self, size: int) -> Pair:
        """Return the reach before and beyond an input of ``size`` positions."""
        return max(0, -self.first), max(0, self.first + self.span - size)


@dataclass(frozen=True)
class Transposed(ConvolvedChannels):
    """A transposed convolution; pairs are (x, y)."""

    stride: Pair
    epilogue: Epilogue


@dataclass(frozen=True)
class Phase:
    """A phase to emit: a convolution of stride 1 that writes every s-th position.

    Attributes:
        conv: What it is a phase of.
        source: What it reads.
        x: The phase along rows.
        y: The phase along columns.
        bias: The packed bias.
        others: The operands of each image behind the bias.
    """

    conv: Transposed
    source: Blocked
    x: PhaseAxis
    y: PhaseAxis
    bias: Plain
    others: Sequence[tuple[OperandRef, ...]]

    @property
    def is_reached(self) -> bool:
        """Whether any tap reaches it; without one the bias and the epilogue are left."""
        return bool(self.x.taps and self.y.taps)

    @property
    def kernel(self) -> Pair:
        """Its taps."""
        return len(self.x.taps), len(self.y.taps)

    @property
    def dilation(self) -> Pair:
        """Input positions between two taps."""
        return self.x.dilation, self.y.dilation

    def weights(self, lowering: Lowering, shape: tuple[int, ...]) -> Plain:
        """Return its weights, packed in a shape."""
        return _weights(lowering, self.conv, self.x.taps, self.y.taps, shape)

    def emit(self, lowering: Lowering, desc: OpDesc, weights: Plain, *tables: Plain, taps: bool = False) -> None:
        """Emit its calls, of a kernel that reads a window or its taps; ``tables`` are operands behind the bias."""
        for image, more in zip(lowering.images(self.conv.images), self.others, strict=True):
            if self.is_reached:
                data = _source(self.source, image, self.x, self.y, taps=taps)
            else:
                data = BlockedTaps(self.source.part(0, 0), image, (0, 0), (self.x.count, self.y.count))
            lowering.emit(desc, [data, weights, self.bias, *tables, *more], self.conv.node)


@serves("ConvTranspose")
def lower_conv_transpose(lowering: Lowering, node: Node) -> None:
    """Lower a ConvTranspose of one or two spatial dimensions, phase by phase."""
    *_, bias = operands_of(lowering, node)
    conv = _transposed(lowering, node)
    phases = _phase_pairs(lowering, node, conv.stride)
    if conv.groups > 1 and any(not (x.taps and y.taps) for x, y in phases):
        raise NotServedError("ConvTranspose of groups with outputs that no tap reaches")
    if len(phases) == 1 and conv.groups == 1 and _by_tiles(lowering, conv, *phases[0]):
        return
    source = lowering.blocked(node.inputs[0])
    _, _, height, width = source.shape
    for x, y in phases:
        if x.taps and y.taps:
            (left, right), (top, bottom) = x.reach(width), y.reach(height)
            source.storage.grow_halo(left, top, right, bottom)
    fill, beyond = padding(conv.epilogue, lowering, conv.outputs)
    packed_bias = pack_channels(lowering, bias, conv.outputs, fill)
    places = [
        [partial(_place, image=n, x=x, y=y, stride=conv.stride) for n in lowering.images(conv.images)]
        for x, y in phases
    ]
    residuals = [
        [references(conv.epilogue, lowering, conv.outputs, n, place) for n, place in enumerate(each)] for each in places
    ]
    result = lowering.new_blocked(node.outputs[0], beyond)
    for (x, y), own, extra in zip(phases, places, residuals, strict=True):
        others = [(*more, place(result)) for place, more in zip(own, extra, strict=True)]
        ask(lowering, (ASKED, "ConvPhase"), Phase(conv, source, x, y, packed_bias, others))


def _by_tiles(lowering: Lowering, conv: Transposed, x: PhaseAxis, y: PhaseAxis) -> bool:
    """Emit a transposed convolution of stride 1 as a convolution by Winograd's algorithm, if that is worth it."""
    data, weights, bias = operands_of(lowering, conv.node)
    if lowering.is_constant(weights) or conv.stride != (1, 1) or max(x.first, y.first) > 0:
        return False
    _, _, height, width = image_shape(lowering.type(data).shape)
    kernel, dilation = (len(x.taps), len(y.taps)), (x.dilation, y.dilation)
    before, out = (-x.first, -y.first), (x.count, y.count)
    after = x.reach(width)[1], y.reach(height)[1]
    window = Window(kernel, (1, 1), dilation, before, after, (width, height), out)
    same = Convolution(conv.node, conv.images, conv.inputs, conv.outputs, 1, window, weights, bias, conv.epilogue)
    try:
        ask(lowering, (ASKED, "TurnedConvolution"), same)
    except NotServedError:
        return False
    return True


def _transposed(lowering: Lowering, node: Node) -> Transposed:
    before, after = lowering.type(node.inputs[0]).shape, lowering.type(node.outputs[0]).shape
    if 0 in before or 0 in after:
        raise NotServedError("an operand is empty")
    images, inputs, _, _ = image_shape(before)
    stride = spatial_pair(node.attrs.get("strides"), len(before) - 2, 1)
    groups = int(node.attrs.get("group", 1))
    return Transposed(node, images, inputs, after[1], groups, stride, epilogue_of(lowering, node))


def _phase_pairs(lowering: Lowering, node: Node, stride: Pair) -> list[tuple[PhaseAxis, PhaseAxis]]:
    """Return the phases, each as its two axes."""
    kernel = lowering.type(node.inputs[1]).shape[2:]
    rank = len(kernel)
    taps, dilation = spatial_pair(kernel, rank, 1), spatial_pair(node.attrs.get("dilations"), rank, 1)
    _, _, out_height, out_width = image_shape(lowering.type(node.outputs[0]).shape)
    types = [lowering.type(name) for name in node.inputs[:2]]
    before = spatial_pair(transposed_range(ShapeCall(node, types, [None, None]))[0], rank, 0)
    across = _phases(out_width, taps[0], stride[0], dilation[0], before[0])
    down = _phases(out_height, taps[1], stride[1], dilation[1], before[1])
    return [(x, y) for y in down for x in across]


def _phases(out: int, taps: int, stride: int, dilation: int, before: int) -> list[PhaseAxis]:
    """Return the phases of one direction that have outputs."""
    found = []
    for start in range(min(stride, out)):
        used = tuple(tap for tap in reversed(range(taps)) if (start + before - tap * dilation) % stride == 0)
        first = (start + before - used[0] * dilation) // stride if used else 0
        count = -(-(out - start) // stride)
        found.append(PhaseAxis(start, count, used, dilation // gcd(stride, dilation) if len(used) > 1 else 1, first))
    return found


def _source(value: Blocked, image: int, x: PhaseAxis, y: PhaseAxis, taps: bool) -> OperandRef:
    """Return the operand that a phase reads of one image: its taps, or a window."""
    if taps:
        start, count, kernel = (x.first, y.first), (x.count, y.count), (len(x.taps), len(y.taps))
        return BlockedTaps(value, image, start, count, (1, 1), kernel, (x.dilation, y.dilation))
    return value.window(image, -x.first, -y.first, x.span, y.span)


def _place(value: Blocked, image: int, x: PhaseAxis, y: PhaseAxis, stride: Pair) -> BlockedPhase:
    return BlockedPhase(value, image, (x.start, y.start), (x.count, y.count), stride)


def _weights(
    lowering: Lowering, conv: Transposed, across: Sequence[int], down: Sequence[int], shape: tuple[int, ...]
) -> Plain:
    name, groups = conv.node.inputs[1], conv.groups
    if not lowering.is_constant(name):
        return _packed_at_run_time(lowering, conv, across, down)

    def pack() -> Array:
        weights = packing.four_dimensional(np.asarray(lowering.constant(name)))
        ci, outs, kh, kw = weights.shape
        turned = weights.reshape(groups, ci // groups, outs, kh, kw).transpose(0, 2, 1, 3, 4)
        phase = turned.reshape(groups * outs, ci // groups, kh, kw)[:, :, list(down)][:, :, :, list(across)]
        if conv.is_depthwise:
            return packing.pack_depthwise(phase)
        return packing.pack_direct(phase) if groups == 1 else packing.pack_grouped(phase)

    recipe = f"transposed {'depthwise' if conv.is_depthwise else groups} {tuple(across)} {tuple(down)}"
    return lowering.packed((name,), recipe, shape, "float32", pack)


def _packed_at_run_time(lowering: Lowering, conv: Transposed, across: Sequence[int], down: Sequence[int]) -> Plain:
    """Emit the copies that bring a phase's taps of weights that are computed into the kernels' layout."""
    name, own = conv.node.inputs[1], lowering.weight_blocks.get(conv.node.inputs[1])
    found = None
    if own is not None and conv.groups == 1:
        found = run_time_weights.turned_blocks(lowering, own, conv.node.name, down, across)
    elif conv.groups == 1 and conv.stride == (1, 1):
        found = run_time_weights.in_blocks(lowering, name, conv.node.name, turned=True)
    if found is not None:
        return found
    weights = lowering.plain(name)
    if len(weights.shape) == 3:
        weights = viewed_as(
            weights, (*weights.shape[:2], 1, weights.shape[2]), (*weights.strides[:2], 0, weights.strides[2])
        )
    for axis, taps in ((2, down), (3, across)):
        step = taps[1] - taps[0] if len(taps) > 1 else 1
        weights = narrowed(weights, axis, taps[0], len(taps), step)
    if conv.is_depthwise:
        return run_time_weights.packed(lowering, weights, run_time_weights.DEPTHWISE, conv.node.name)
    layout = run_time_weights.DIRECT if conv.groups == 1 else run_time_weights.GROUPED
    turned = run_time_weights.by_group(lowering, weights, conv.groups, conv.node.name)
    return run_time_weights.packed(lowering, turned, layout, conv.node.name)
