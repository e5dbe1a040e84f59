"""Windows: the geometry that convolutions and pools of blocked values share, and the taps of plain values, as views.

A ``Window`` always has two dimensions (one dimension has height 1); plain values have up to three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from math import prod

import numpy as np

from opbuild.graph.extents import as_extent, at_most, is_one, is_open, may_reach, values_of
from opbuild.graph.shape_rules import ShapeCall
from opbuild.graph.shape_rules_window import window_pads
from opbuild.graph.symbolic_numbers import greater, is_equal, lesser
from opbuild.graph.tables import SPATIAL, PooledAxis
from opbuild.graph.types import Node, TensorType
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError
from opbuild.lowering.operands import Blocked, BlockedImageTaps, BlockedPhase, BlockedTaps, Plain
from opbuild.lowering.strided import broadcast, dense_as, narrowed, viewed_as
from opbuild.platform.records import dataclass, replace

Pair = tuple[int, int]
"""Two numbers, x first."""


@dataclass(frozen=True)
class Window:
    """A sliding window; every pair is (x, y).

    Attributes:
        kernel: Taps.
        stride: Input positions from one output to the next.
        dilation: Input positions from one tap to the next; 1 where there is one tap.
        before: Padding on the left and at the top.
        after: Padding on the right and at the bottom, as the node says (a window may reach less far, or further in
            ceil mode).
        size: Extents of the input.
        out: Extents of the output.
    """

    kernel: Pair
    stride: Pair
    dilation: Pair
    before: Pair
    after: Pair
    size: Pair
    out: Pair

    @property
    def span(self) -> Pair:
        """Input positions from the first tap of the first output to the last tap of the last output."""
        return _pair(
            (o - 1) * s + (k - 1) * d + 1 if o else 0
            for o, s, k, d in zip(self.out, self.stride, self.kernel, self.dilation, strict=True)
        )

    @property
    def overhang(self) -> Pair:
        """Positions beyond the input's right and bottom edge that windows reach; at any size if that is open."""
        return _pair(
            max(0, at_most(span - before - size))
            for span, before, size in zip(self.span, self.before, self.size, strict=True)
        )

    @property
    def halo(self) -> tuple[int, int, int, int]:
        """The halo ``(left, top, right, bottom)`` that the input needs."""
        return (*self.before, *self.overhang)

    @property
    def padded(self) -> bool:
        """Whether any window reaches outside the input."""
        return any(self.halo)

    def read(self, source: Blocked, image: int) -> BlockedPhase:
        """Return the part of an image that all outputs together read."""
        return source.window(image, *self.before, *self.span)

    def taps(self, source: Blocked, image: int) -> BlockedTaps:
        """Return the elements that each output reads of an image at each tap."""
        return BlockedTaps(source, image, self.first, self.out, self.stride, self.kernel, self.dilation)

    def image_taps(self, source: Blocked) -> BlockedImageTaps:
        """Return the elements that each output reads at each tap, of all images."""
        return BlockedImageTaps(source, 0, self.first, self.out, self.stride, self.kernel, self.dilation)

    @property
    def first(self) -> Pair:
        """The position of the first tap of the first output."""
        return -self.before[0], -self.before[1]

    def at_paddings(self) -> Iterator[Window]:
        """Yield the window for each padding on the left and at the top that it may have at some size."""
        return (replace(self, before=_pair(before)) for before in product(*map(values_of, self.before)))

    @property
    def misses(self) -> bool:
        """Whether some window has no tap inside the input: one that is dilated, or padded by its size or more."""
        return any(
            _misses(*axis)
            for axis in zip(self.kernel, self.stride, self.dilation, self.before, self.size, self.out, strict=True)
        )


@dataclass(frozen=True)
class ConvolvedChannels:
    """The node of a convolution, and its channels.

    Attributes:
        node: The node.
        images: Images of the batch.
        inputs: Input channels.
        outputs: Output channels.
        groups: Groups of channels.
    """

    node: Node
    images: int
    inputs: int
    outputs: int
    groups: int

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is a group of its own."""
        return 1 < self.groups == self.inputs == self.outputs


@dataclass(frozen=True)
class ConvolvedWindows(ConvolvedChannels):
    """The same with the geometry."""

    window: Window


def image_shape(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return ``(N, C, H, W)`` of a value of rank 3 or 4.

    Raises:
        NotServedError: If the rank is another one.
    """
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    if len(shape) == 3:
        return shape[0], shape[1], 1, shape[2]
    raise NotServedError(f"kernels slide over one or two dimensions, not over shape {list(shape)}")


def with_height(value: Plain) -> Plain:
    """Return images, or weights, with a height, of 1 where they have one spatial dimension."""
    if len(value.shape) == 4:
        return value
    return viewed_as(value, (*value.shape[:2], 1, value.shape[2]), (*value.strides[:2], 0, value.strides[2]))


def spatial_pair(values: Sequence[int] | None, rank: int, default: int) -> Pair:
    """Return a per-dimension attribute as (x, y); ONNX gives it outermost first.

    Raises:
        NotServedError: If it does not have ``rank`` values.
    """
    given = [as_extent(value) for value in values] if values else [default] * rank
    if len(given) != rank:
        raise NotServedError(f"an attribute has {len(given)} values for {rank} dimensions")
    return (given[0], default) if rank == 1 else (given[1], given[0])


def window_of(lowering: Lowering, node: Node, kernel: Sequence[int], outputs: str = "") -> Window:
    """Return the window of a convolution or pool whose spatial kernel shape is ``kernel`` (outermost first).

    ``outputs`` names the value that has an element for each position of the window, the node's first output if empty.

    Raises:
        NotServedError: If the node has more than two spatial dimensions, a negative padding or an empty operand.
    """
    data, result = lowering.type(node.inputs[0]).shape, lowering.type(outputs or node.outputs[0]).shape
    n, c, height, width = image_shape(data)
    _, channels, out_height, out_width = image_shape(result)
    if 0 in (n, c, height, width, channels, out_height, out_width):
        raise NotServedError("an operand is empty")
    rank = len(data) - 2
    taps = spatial_pair(kernel, rank, 1)
    stride = spatial_pair(node.attrs.get("strides"), rank, 1)
    dilation = spatial_pair(node.attrs.get("dilations"), rank, 1)
    size, out = (width, height), (out_width, out_height)
    pads = window_pads(ShapeCall(node, [lowering.type(node.inputs[0])], [None]), data[2:], kernel)
    if any(pad < 0 for pad in pads):
        raise NotServedError("negative padding")
    before, after = spatial_pair(pads[:rank], rank, 0), spatial_pair(pads[rank:], rank, 0)
    dilation = _pair(1 if is_one(k) else d for k, d in zip(taps, dilation, strict=True))
    return Window(taps, stride, dilation, before, after, size, out)


def each_padding(lowering: Lowering, window: Window, emit: Callable[[Window], object], axis: int = 0) -> None:
    """Emit a window by kernels that are for one padding on the left and at the top, known or symbolic.

    A symbolic one, as of ``SAME`` at a stride, has a few values; there is a way for each.

    Args:
        lowering: What the calls are emitted to.
        window: The window.
        emit: Emits the calls of a window whose paddings from ``axis`` on are known.
        axis: 0 for x, 1 for y.
    """
    if axis == len(window.before):
        emit(window)
        return

    def emit_at(value: int) -> Callable[[], object]:
        known = replace(window, before=_pair((*window.before[:axis], value, *window.before[axis + 1 :])))
        return partial(each_padding, lowering, known, emit, axis + 1)

    own = window.before[axis]
    *others, last = values_of(own)
    lowering.either([*((is_equal(own, value), emit_at(value)) for value in others), (1, emit_at(last))])


def _pair(values: Iterable[int]) -> Pair:
    x, y = values
    return x, y


def _misses(kernel: int, stride: int, dilation: int, before: int, size: int, out: int) -> bool:
    """Return whether some window of one dimension has no tap inside; only those that begin outside may have none."""
    if (out - 1) * stride - before >= size:
        return True
    for start in range(-before, 0, stride):
        if not may_reach(out * stride, start + before + 1):
            break
        first = -(start // dilation)  # the first tap that does not lie before the input
        if first >= kernel or start + first * dilation >= size:
            return True
    return False


def require_float(lowering: Lowering, node: Node) -> None:
    """Require that a node's first input is float32.

    Raises:
        NotServedError: If it is not.
    """
    dtype = lowering.type(node.inputs[0]).dtype
    if dtype != "float32":
        raise NotServedError(f"{node.op_type} of {dtype}")


def axes_of(lowering: Lowering, node: Node, kernel: Sequence[int]) -> list[PooledAxis]:
    """Return the spatial dimensions, three of them, outermost first.

    Raises:
        NotServedError: If there are more, or less padding than none.
    """
    type_ = lowering.type(node.inputs[0])
    size = type_.shape[2:]
    rank = len(size)
    if not 1 <= rank <= SPATIAL:
        raise NotServedError(f"{node.op_type} over {rank} dimensions")
    out = lowering.type(next(name for name in node.outputs if name)).shape[2:]
    pads = window_pads(ShapeCall(node, [type_], [None]), size, kernel)
    if any(pad < 0 for pad in pads):
        raise NotServedError("negative padding")
    strides, dilations = ([int(v) for v in node.attrs.get(name) or (1,) * rank] for name in ("strides", "dilations"))
    own = [
        PooledAxis(
            size[i], out[i], kernel[i], strides[i], 1 if is_one(kernel[i]) else dilations[i], pads[i], pads[rank + i]
        )
        for i in range(rank)
    ]
    return [PooledAxis(1, 1, 1, 1, 1, 0, 0)] * (SPATIAL - rank) + own


def what_is_read(lowering: Lowering, node: Node, axes: Sequence[PooledAxis], kind: str) -> Plain:
    """Return the elements that each output reads at each tap: of the input, or of a copy of it with its padding around.

    Args:
        lowering: The state of lowering.
        node: The node, which slides along its first input.
        axes: Its spatial dimensions.
        kind: ``max``: padding is less than everything; else it is 0.

    Returns:
        A view ``(planes, *taps, *outputs)``.
    """
    images, channels, *_ = lowering.type(node.inputs[0]).shape
    source = dense_as(lowering.dense(node.inputs[0]), (images * channels, *(axis.size for axis in axes)))
    return slid_over(lowering, node, source, axes, kind)


def slid_over(lowering: Lowering, node: Node, source: Plain, axes: Sequence[PooledAxis], kind: str) -> Plain:
    """Return the same of a view ``(planes, *sizes, ...)`` as ``(planes, *taps, *outputs, ...)``."""
    if not is_open(axis.before for axis in axes) and all(axis.before == 0 and axis.span <= axis.size for axis in axes):
        return slid(source, axes)
    dtype, extents = (
        source.storage.dtype,
        (source.shape[0], *(axis.span for axis in axes), *source.shape[1 + SPATIAL :]),
    )
    padded = lowering.temporary(TensorType(dtype, extents))
    lowering.copy(broadcast(_fill(lowering, dtype, kind), padded.shape), padded, node.name)
    inside, target = source, padded
    for number, axis in enumerate(axes, 1):
        count = greater(lesser(axis.size, axis.span - axis.before), 0)
        inside, target = narrowed(inside, number, 0, count), narrowed(target, number, axis.before, count)
    if prod(inside.shape):
        lowering.copy(inside, target, node.name)
    return slid(padded, axes)


def slid(value: Plain, axes: Sequence[PooledAxis]) -> Plain:
    """Return a value ``(planes, *extents, ...)`` as ``(planes, *taps, *outputs, ...)``."""
    (plane, *steps), inner = value.strides[: 1 + SPATIAL], value.strides[1 + SPATIAL :]
    outputs = (axis.out for axis in axes)
    shape = (value.shape[0], *(axis.taps for axis in axes), *outputs, *value.shape[1 + SPATIAL :])
    strides = (
        plane,
        *(step * axis.dilation for step, axis in zip(steps, axes, strict=True)),
        *(step * axis.stride for step, axis in zip(steps, axes, strict=True)),
        *inner,
    )
    return viewed_as(value, shape, strides)


def _fill(lowering: Lowering, dtype: str, kind: str) -> Plain:
    kind_of = np.dtype(dtype)
    least = -np.inf if kind_of.kind == "f" else np.iinfo(kind_of).min if kind == "max" else 0
    number = least if kind == "max" else 0
    return lowering.packed((), f"number {number!r}", (), dtype, lambda: np.array(number, kind_of))
