"""Windows that slide along plain values, over up to three spatial dimensions: the taps of each output, as a view."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from opbuild.graph.extents import is_one, is_open
from opbuild.graph.shape_rules import ShapeCall
from opbuild.graph.shape_rules_window import window_pads
from opbuild.graph.symbolic_numbers import greater, lesser
from opbuild.graph.tables import SPATIAL, PooledAxis
from opbuild.graph.types import Node, TensorType
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import broadcast, dense_as, narrowed, viewed_as


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
    name = node.inputs[0]
    type_ = lowering.type(name)
    planes = type_.shape[0] * type_.shape[1]
    source = dense_as(lowering.dense(name), (planes, *(axis.size for axis in axes)))
    if not is_open(axis.before for axis in axes) and all(axis.before == 0 and axis.span <= axis.size for axis in axes):
        return slid(source, axes)
    padded = lowering.temporary(TensorType(type_.dtype, (planes, *(axis.span for axis in axes))))
    lowering.copy(broadcast(_fill(lowering, type_.dtype, kind), padded.shape), padded, node.name)
    inside, target = source, padded
    for number, axis in enumerate(axes, 1):
        count = greater(lesser(axis.size, axis.span - axis.before), 0)
        inside, target = narrowed(inside, number, 0, count), narrowed(target, number, axis.before, count)
    if prod(inside.shape):
        lowering.copy(inside, target, node.name)
    return slid(padded, axes)


def slid(value: Plain, axes: Sequence[PooledAxis]) -> Plain:
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
