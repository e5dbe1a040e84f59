"""Pools of plain values: any number of spatial dimensions up to three, any dilation, with places, by any norm."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from opbuild.families.window import family as windows
from opbuild.graph.extents import is_one, is_open
from opbuild.graph.shape_rules import Call
from opbuild.graph.shape_rules_window import window_pads
from opbuild.graph.types import Node, TensorType
from opbuild.graph.undecided import greater, lesser
from opbuild.graph.windows import Axis
from opbuild.lowering.context import Lowering, NotServedError, rule
from opbuild.lowering.operands import Plain, dense_strides
from opbuild.lowering.strided import broadcast, dense_as, narrowed, viewed_as
from opbuild.lowering.tables import table

SPATIAL = windows.SPATIAL


@rule("LpPool")
def lp_pool(lowering: Lowering, node: Node) -> None:
    """Lower a pool by the norm of order 1 or 2."""
    order = int(node.attrs.get("p", 2))
    if order not in (1, 2):
        raise NotServedError(f"LpPool of order {order}")
    plain_pool(lowering, node, f"l{order}")


def plain_pool(lowering: Lowering, node: Node, kind: str) -> None:
    """Lower a pool of a value that lies plain, in plain layout.

    Raises:
        NotServedError: If no kernel serves it.
    """
    type_ = lowering.type(node.inputs[0])
    places = node.outputs[1] if len(node.outputs) > 1 else ""
    axes = axes_of(lowering, node, [int(taps) for taps in node.attrs["kernel_shape"]])
    if type_.dtype not in windows.TYPES[kind]:
        raise NotServedError(f"{node.op_type} of {type_.dtype}")
    if not type_.size or any(axis.out < 1 for axis in axes):
        raise NotServedError("an operand is empty")
    source = what_is_read(lowering, node, axes, kind)
    if node.outputs[0]:
        counted = bool(node.attrs.get("count_include_pad", 0))
        extra = [_counts(lowering, axes, counted, type_.dtype)] if kind == "average" else []
        _emit(lowering, node, node.outputs[0], kind, source, extra)
    if places:
        extra = [_places(lowering, axes, bool(node.attrs.get("storage_order", 0))), _starts(lowering, axes, type_)]
        _emit(lowering, node, places, "place", source, extra)


def axes_of(lowering: Lowering, node: Node, kernel: Sequence[int]) -> list[Axis]:
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
    pads = window_pads(Call(node, [type_], [None]), size, kernel)
    if any(pad < 0 for pad in pads):
        raise NotServedError("negative padding")
    strides, dilations = ([int(v) for v in node.attrs.get(name) or (1,) * rank] for name in ("strides", "dilations"))
    own = [
        Axis(size[i], out[i], kernel[i], strides[i], 1 if is_one(kernel[i]) else dilations[i], pads[i], pads[rank + i])
        for i in range(rank)
    ]
    return [Axis(1, 1, 1, 1, 1, 0, 0)] * (SPATIAL - rank) + own


def what_is_read(lowering: Lowering, node: Node, axes: Sequence[Axis], kind: str) -> Plain:
    """Return what each output reads at each tap: of the input, or of a copy of it with its padding around.

    Args:
        lowering: The state of lowering.
        node: The node, which slides along its first input.
        axes: Its spatial dimensions.
        kind: ``max``: padding is less than everything; else it is 0.

    Returns:
        A view ``(planes, *taps, *outputs)``.
    """
    name = node.inputs[0]
    type_ = lowering.type(name)
    planes = type_.shape[0] * type_.shape[1]
    source = dense_as(lowering.dense(name), (planes, *(axis.size for axis in axes)))
    if not is_open(axis.before for axis in axes) and all(axis.before == 0 and axis.span <= axis.size for axis in axes):
        return _slid(source, axes)
    padded = lowering.temporary(TensorType(type_.dtype, (planes, *(axis.span for axis in axes))))
    lowering.copy(broadcast(_fill(lowering, type_.dtype, kind), padded.shape), padded, node.name)
    inside, target = source, padded
    for number, axis in enumerate(axes, 1):
        count = greater(lesser(axis.size, axis.span - axis.before), 0)
        inside, target = narrowed(inside, number, 0, count), narrowed(target, number, axis.before, count)
    if prod(inside.shape):
        lowering.copy(inside, target, node.name)
    return _slid(padded, axes)


def _slid(value: Plain, axes: Sequence[Axis]) -> Plain:
    """Return a value ``(planes, *extents)`` as ``(planes, *taps, *outputs)``."""
    plane, *steps = value.strides
    shape = (value.shape[0], *(axis.taps for axis in axes), *(axis.out for axis in axes))
    strides = (
        plane,
        *(step * axis.dilation for step, axis in zip(steps, axes, strict=True)),
        *(step * axis.stride for step, axis in zip(steps, axes, strict=True)),
    )
    return viewed_as(value, shape, strides)


def _fill(lowering: Lowering, dtype: str, kind: str) -> Plain:
    kind_of = np.dtype(dtype)
    least = -np.inf if kind_of.kind == "f" else np.iinfo(kind_of).min if kind == "max" else 0
    number = least if kind == "max" else 0
    return lowering.packed((), f"number {number!r}", (), dtype, lambda: np.array(number, kind_of))


def _counts(lowering: Lowering, axes: Sequence[Axis], padded: bool, dtype: str) -> Plain:
    """Return how many elements each output is the average of, 1 where there are none."""
    shape = tuple(axis.out for axis in axes)
    return table(lowering, "window counts", (tuple(map(tuple, axes)), padded, dtype), shape, dtype)


def _places(lowering: Lowering, axes: Sequence[Axis], columns_first: bool) -> Plain:
    """Return the place in its plane of what each output reads at each tap, -1 in the padding."""
    extents = tuple(axis.reach for axis in axes)
    own = table(lowering, "window places", (tuple(map(tuple, axes)), columns_first), extents, "int64")
    slid = _slid(viewed_as(own, (1, *extents), (0, *dense_strides(extents))), axes)
    return viewed_as(slid, slid.shape[1:], slid.strides[1:])


def _starts(lowering: Lowering, axes: Sequence[Axis], type_: TensorType) -> Plain:
    """Return the place of each plane's first element."""
    planes, plane = type_.shape[0] * type_.shape[1], prod(axis.size for axis in axes)
    return table(lowering, "window starts", (planes, plane), (planes,), "int64")


def _emit(lowering: Lowering, node: Node, output: str, kind: str, source: Plain, extra: Sequence[Plain]) -> None:
    dtype, out = source.storage.dtype, lowering.new_plain(output)
    target = dense_as(out, (source.shape[0], *source.shape[1 + SPATIAL :]))
    variant = lowering.choose(windows.choose, target.shape[-1])
    mode = lowering.impl_mode(node, differs=dtype == "float32" and kind not in ("max", "place"))
    desc = windows.describe(node.op_type, kind, dtype, source.strides[-1], variant, mode)
    lowering.emit(desc, (source, *extra, target), node)
