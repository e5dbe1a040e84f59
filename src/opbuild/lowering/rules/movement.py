"""Lowering of operators that move elements: most only see them otherwise, the rest copy between strided places.

Checks of indices see theirs only, too; numbers that follow from extents and are read as data are constants of one size.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import InvalidModelError
from opbuild.families.blocked import BLOCK, blocks
from opbuild.graph.extents import as_extent, is_one, is_open
from opbuild.graph.indices import HINT, outside
from opbuild.graph.shape_rules_movement import sliced
from opbuild.graph.symbolic_numbers import greater
from opbuild.graph.types import Array, Node
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.operands import Plain, dense_strides
from opbuild.lowering.strided import broadcast, dense_as, narrowed, reshaped, transposed, viewed_as


def integers(lowering: Lowering, node: Node, index: int) -> tuple[int, ...] | None:
    """Return the integers in an input that must be known when the network is built, or None if it is absent."""
    value = known(lowering, node, index)
    return None if value is None else tuple(as_extent(item) for item in value.reshape(-1))


def known(lowering: Lowering, node: Node, index: int) -> Array | None:
    """Return an input that must be known when the network is built, or None if it is absent.

    Raises:
        NotServedError: If it is known only at run time.
    """
    if index >= len(node.inputs) or not node.inputs[index]:
        return None
    value = lowering.constant(node.inputs[index])
    if value is None:
        raise NotServedError(f"input {node.inputs[index]} of {node.op_type} is known only at run time")
    return value


def move(lowering: Lowering, source: Plain, target: Plain, name: str) -> None:
    """Copy between strided places of one shape, if there is anything to copy."""
    if prod(source.shape):
        lowering.copy(source, target, name)


def in_shape(lowering: Lowering, value: Plain, shape: Sequence[int], name: str) -> Plain:
    """Return a value in another shape, copied if its memory does not allow that."""
    found = reshaped(value, shape)
    if found is not None:
        return found
    target = Plain(lowering.temporary(lowering.type(name)).storage, value.shape, dense_strides(value.shape))
    move(lowering, value, target, name)
    return dense_as(target, shape)


@serves("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(lowering: Lowering, node: Node) -> None:
    """Lower the operators that keep the elements and their order."""
    source, output = node.inputs[0], node.outputs[0]
    shape = lowering.type(output).shape
    lowering.bind(output, reshaped(lowering.plain(source), shape) or dense_as(lowering.dense(source), shape))


@serves("opbuild.ChannelShuffle")
def channel_shuffle(lowering: Lowering, node: Node) -> None:
    """Lower a shuffle of channels: of a blocked value to an order, which grouped convolutions read as it is."""
    source, output, groups = node.inputs[0], node.outputs[0], int(node.attrs["group"])
    type_ = lowering.type(source)
    n, channels, *rest = type_.shape
    if lowering.has_blocked(source) and type_.dtype == "float32":
        order = np.arange(channels, dtype=np.int32).reshape(groups, -1).T.reshape(-1)
        lowering.bind_ordered(output, lowering.blocked(source), order)
        return
    split = in_shape(lowering, lowering.plain(source), (n, groups, channels // groups, *rest), source)
    swapped = transposed(split, (0, 2, 1, *range(3, 3 + len(rest))))
    lowering.bind(output, in_shape(lowering, swapped, type_.shape, output))


@serves("opbuild.PlainWeights")
def lower_plain_weights(lowering: Lowering, node: Node) -> None:
    """Weights that lie in blocks are read there by convolutions, and become plain if something else reads them."""
    lowering.weight_blocks[node.outputs[0]] = lowering.dense(node.inputs[0])


@serves("Identity", "Dropout")
def identity(lowering: Lowering, node: Node) -> None:
    """Lower the operators that do nothing at inference: the output is the input."""
    if any(name and (lowering.consumers.get(name) or name in lowering.graph.outputs) for name in node.outputs[1:]):
        raise NotServedError("the mask of Dropout has no kernel")
    if len(node.inputs) > 2 and node.inputs[2]:
        training = lowering.constant(node.inputs[2])
        if training is None or training.any():
            raise NotServedError("Dropout in training has no kernel")
    source, output = node.inputs[0], node.outputs[0]
    lowering.bind(output, lowering.blocked(source) if lowering.is_blocked(source) else lowering.plain(source))


@serves("BitCast")
def bit_cast(lowering: Lowering, node: Node) -> None:
    """Lower BitCast to a copy, which moves bytes whatever they are."""
    if lowering.type(node.outputs[0]).dtype == "bool" != lowering.type(node.inputs[0]).dtype:
        raise NotServedError("BitCast to bool has no kernel: a bool is 0 or 1 in memory")
    move(lowering, lowering.plain(node.inputs[0]), lowering.new_plain(node.outputs[0]), node.name)


@serves("Transpose")
def transpose(lowering: Lowering, node: Node) -> None:
    """Lower Transpose to strides; whoever needs the elements adjacent copies them."""
    value = lowering.plain(node.inputs[0])
    order = node.attrs.get("perm") or tuple(reversed(range(len(value.shape))))
    lowering.bind(node.outputs[0], transposed(value, [int(axis) for axis in order]))


@serves("Expand")
def expand(lowering: Lowering, node: Node) -> None:
    """Lower Expand to strides of 0."""
    lowering.bind(node.outputs[0], broadcast(lowering.plain(node.inputs[0]), lowering.type(node.outputs[0]).shape))


@serves("Slice")
def slice_(lowering: Lowering, node: Node) -> None:
    """Lower Slice to an offset and strides, negative steps too."""
    starts, ends = integers(lowering, node, 1), integers(lowering, node, 2)
    if starts is None or ends is None:
        raise NotServedError("Slice without bounds")
    axes = integers(lowering, node, 3) or tuple(range(len(starts)))
    steps = integers(lowering, node, 4) or (1,) * len(starts)
    value = lowering.plain(node.inputs[0])
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        first, count = sliced(value.shape[axis], start, end, step)
        value = narrowed(value, axis % len(value.shape), first, count, step)
    lowering.bind(node.outputs[0], value)


@serves("Split")
def split(lowering: Lowering, node: Node) -> None:
    """Lower Split to offsets."""
    value, start = lowering.plain(node.inputs[0]), 0
    axis = int(node.attrs.get("axis", 0)) % len(value.shape)
    sizes = integers(lowering, node, 1)
    for index, output in enumerate(node.outputs):
        count = sizes[index] if sizes else lowering.type(output).shape[axis] if output else 0
        if not output and not sizes:
            raise NotServedError("Split into equal parts of which one is not read")
        if output:
            lowering.bind(output, narrowed(value, axis, start, count))
        start += count


@serves("Concat")
def concat(lowering: Lowering, node: Node) -> None:
    """Lower Concat: channel blocks, and parts along the outermost axis, lie in the output; others are copied."""
    names, output = [name for name in node.inputs if name], node.outputs[0]
    if _concat_blocked(lowering, node):
        return
    shape = lowering.type(output).shape
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    parts = [lowering.plain(name) for name in names]
    whole, start = lowering.new_as(output, parts), 0
    outermost = all(is_one(extent) for extent in shape[:axis])
    for name, part in zip(names, parts, strict=True):
        count = part.shape[axis]
        place = narrowed(whole, axis, start, count)
        if outermost and names.count(name) == 1 and part.whole:
            part.storage.alias = (whole.storage, place.offset)
        else:
            move(lowering, part, place, output)
        start += count


def _concat_blocked(lowering: Lowering, node: Node) -> bool:
    """Lower a Concat along channels by letting its inputs lie inside its output; return whether that was possible.

    It is if one input at least lies blocked, every input but the last fills its blocks, and none lies inside another
    value already. Inputs that lie plain are converted into their place.
    """
    shape = lowering.type(node.outputs[0]).shape
    names = list(node.inputs)
    axis = int(node.attrs.get("axis", 1))
    if len(shape) not in (3, 4) or axis not in (1, 1 - len(shape)) or len(set(names)) != len(names):
        return False
    if not any(lowering.has_blocked(name) for name in names) or 0 in shape:
        return False
    channels = [lowering.type(name).shape[1] for name in names]
    if any(count % BLOCK or not count for count in channels[:-1]) or not channels[-1]:
        return False
    if any(lowering.has_blocked(name) and lowering.blocked(name).storage.alias for name in names):
        return False
    parts = [lowering.blocked(name) for name in names]
    halos = {part.storage.halo_value for part in parts} - {None}
    if len(halos) > 1:
        return False
    whole = lowering.new_blocked(node.outputs[0], parts[-1].padding_value)
    whole.storage.halo_value = next(iter(halos), None)
    start = 0
    for part, count in zip(parts, channels, strict=True):
        part.storage.alias = (whole.storage, start)
        whole.storage.grow_halo(*part.storage.halo)
        start += blocks(count)
    return True


@serves("Tile")
def tile(lowering: Lowering, node: Node) -> None:
    """Lower Tile to one copy in which every repeated dimension is read with stride 0."""
    repeats = integers(lowering, node, 1)
    if repeats is None:
        raise NotServedError("Tile without repeats")
    value, output = lowering.plain(node.inputs[0]), node.outputs[0]
    whole = lowering.new_plain(output)
    shape = [extent for pair in zip(repeats, value.shape, strict=True) for extent in pair]
    strides = [stride for own in value.strides for stride in (0, own)]
    target = dense_as(whole, shape)
    move(lowering, Plain(value.storage, tuple(shape), tuple(strides), value.offset), target, output)


@serves("DepthToSpace", "SpaceToDepth")
def depth_and_space(lowering: Lowering, node: Node) -> None:
    """Lower DepthToSpace and SpaceToDepth to a transposition between two shapes."""
    source, output, b = node.inputs[0], node.outputs[0], int(node.attrs["blocksize"])
    n, c, h, w = lowering.type(source).shape
    depth_first = node.text("mode", "DCR") == "DCR"
    shape: tuple[int, ...] = (n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if depth_first else (0, 1, 3, 5, 2, 4)
    if node.op_type == "DepthToSpace":
        shape = (n, b, b, c // b**2, h, w) if depth_first else (n, c // b**2, b, b, h, w)
        order = (0, 3, 4, 1, 5, 2) if depth_first else (0, 1, 4, 2, 5, 3)
    value = in_shape(lowering, lowering.plain(source), shape, source)
    lowering.bind(output, in_shape(lowering, transposed(value, order), lowering.type(output).shape, output))


@serves("Pad")
def pad(lowering: Lowering, node: Node) -> None:
    """Lower Pad to copies: the inside first, then each axis' two margins from the output's content by then."""
    source, output = node.inputs[0], node.outputs[0]
    mode = node.text("mode", "constant")
    widths = _pad_widths(lowering, node, len(lowering.type(source).shape))
    value = lowering.plain(source)
    for axis, (before, after) in enumerate(widths):
        first, last = greater(-before, 0), value.shape[axis] - greater(-after, 0)
        value = narrowed(value, axis, first, greater(last - first, 0))
    margins = [(greater(before, 0), greater(after, 0)) for before, after in widths]
    if mode != "constant":
        _check_margins(mode, margins, value.shape)
    has_margins = any(is_open(each) or any(each) for each in margins)
    fill = _fill_value(lowering, node) if mode == "constant" and has_margins else None
    whole = lowering.new_plain(output)
    inside = whole
    for axis, (before, _) in enumerate(margins):
        inside = narrowed(inside, axis, before, value.shape[axis])
    if fill is not None:
        move(lowering, broadcast(fill, whole.shape), whole, output)
    move(lowering, value, inside, output)
    if mode != "constant":
        for target, origin in _margins(mode, whole, inside, margins):
            move(lowering, origin, target, output)


def _pad_widths(lowering: Lowering, node: Node, rank: int) -> list[tuple[int, int]]:
    pads = integers(lowering, node, 1)
    if pads is None:
        raise NotServedError("Pad without pads")
    given = integers(lowering, node, 3)
    axes = tuple(range(rank)) if given is None else tuple(axis % rank for axis in given)
    widths = [(0, 0)] * rank
    for index, axis in enumerate(axes):
        widths[axis] = (pads[index], pads[len(axes) + index])
    return widths


def _fill_value(lowering: Lowering, node: Node) -> Plain:
    type_ = lowering.type(node.inputs[0])
    if len(node.inputs) > 2 and node.inputs[2]:
        return Plain(lowering.plain(node.inputs[2]).storage, (), (), lowering.plain(node.inputs[2]).offset)
    return lowering.packed((), f"zero {type_.dtype}", (), type_.dtype, lambda: np.zeros((), numpy_dtype(type_.dtype)))


def _check_margins(mode: str, margins: Sequence[tuple[int, int]], shape: Sequence[int]) -> None:
    if mode not in ("edge", "reflect", "wrap"):
        raise NotServedError(f"Pad in mode {mode} has no kernel")
    for (before, after), extent in zip(margins, shape, strict=True):
        limit = extent - 1 if mode == "reflect" else extent
        if (before or after) and (extent == 0 or (mode != "edge" and max(before, after) > limit)):
            raise NotServedError(f"Pad by more than the {mode} of {extent} elements has no kernel")


def _margins(mode: str, whole: Plain, inside: Plain, margins: Sequence[tuple[int, int]]) -> list[tuple[Plain, Plain]]:
    """Return pairs of a margin and its source; the axes before are complete when an axis is copied."""
    pairs = []
    for axis, (before, after) in enumerate(margins):
        extent = inside.shape[axis]
        # All of the axes already done, the inside of those to come.
        current = whole
        for other in range(axis + 1, len(margins)):
            current = narrowed(current, other, margins[other][0], inside.shape[other])
        if before:
            pairs.append((narrowed(current, axis, 0, before), _repeated(mode, current, axis, before, extent, before)))
        if after:
            end = before + extent
            pairs.append((narrowed(current, axis, end, after), _repeated(mode, current, axis, before, extent, -after)))
    return pairs


def _repeated(mode: str, current: Plain, axis: int, first: int, extent: int, width: int) -> Plain:
    """Return the source of a margin of ``width`` elements (negative: behind); the inside begins at ``first``."""
    count, last = abs(width), first + extent - 1
    if mode == "edge":
        edge = narrowed(current, axis, first if width > 0 else last, 1)
        shape = (*current.shape[:axis], count, *current.shape[axis + 1 :])
        return broadcast(edge, shape)
    if mode == "reflect":
        return narrowed(current, axis, first + count if width > 0 else last - 1, count, -1)
    return narrowed(current, axis, last - count + 1 if width > 0 else first, count)


@serves("opbuild.Table")
def numbers(lowering: Lowering, node: Node) -> None:
    """Lower Table, which is known when a size is bound."""
    kind = lowering.type(node.outputs[0])
    arguments = (*node.attrs["arguments"], kind.dtype)
    lowering.bind(node.outputs[0], lowering.table(node.text("table", ""), arguments, kind.shape, kind.dtype))


@serves("opbuild.InRange")
def in_range(lowering: Lowering, node: Node) -> None:
    """Lower InRange, whose result is its operand, as it lies.

    Raises:
        InvalidModelError: If an index is known, and out of range.
    """
    name, counts, negative = node.inputs[0], tuple(node.attrs["counts"]), bool(node.attrs["negative"])
    known = lowering.constant(name)
    found = None if known is None else outside(known, counts, negative=negative)
    if found:
        raise InvalidModelError(f"node {node.name!r}: {found}", HINT)
    value = lowering.plain(name)
    lowering.bind(node.outputs[0], value)
    if known is not None or not prod(value.shape):
        return
    indices = _without_repetitions(value) if len(counts) == 1 else value
    indices = indices if indices.dense else lowering.dense(name)
    zero = lowering.packed((), "zero int32", (), "int32", lambda: np.zeros((), np.int32))
    bare = node.with_(outputs=(), attrs={"negative": negative})
    lowering.host(bare, (dense_as(indices, (prod(indices.shape),)), broadcast(zero, counts)))


def _without_repetitions(value: Plain) -> Plain:
    """Return a value without repetitions, its dimensions in the order in which they lie."""
    if value.dense or is_open((*value.shape, *value.strides)):
        return value
    dims = sorted(zip(value.strides, value.shape, strict=True), reverse=True)
    kept = [(stride, extent) for stride, extent in dims if stride and extent > 1]
    return viewed_as(value, [extent for _, extent in kept], [stride for stride, _ in kept])
