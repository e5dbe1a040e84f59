"""Lowering of the normalisations that look at the data: layer, group, instance, root mean square."""

from __future__ import annotations

from math import prod

import numpy as np

from opbuild.families.layer_norm import family as layer_norm
from opbuild.graph.extents import is_one
from opbuild.graph.factors import normalizes
from opbuild.graph.types import Node
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.operands import Plain
from opbuild.lowering.rows import require_types, rounding_of_results, rows_of
from opbuild.lowering.strided import dense_as, viewed_as, with_inner_stride


@serves("LayerNormalization", "RMSNormalization")
def layer_normalization(lowering: Lowering, node: Node) -> None:
    """Lower a normalisation over the last axes, scaled element by element."""
    if any(node.outputs[1:]):
        raise NotServedError(f"{node.op_type}'s mean and deviation are asked for")
    type_ = lowering.type(node.inputs[0])
    if type_.size == 0:
        raise NotServedError("a normalisation of nothing has no kernel")
    axis = int(node.attrs.get("axis", -1)) % max(1, len(type_.shape))
    names = [name for name in node.inputs[1:] if name]
    row = type_.shape[axis:]
    if any(lowering.type(name).size not in (1, prod(row)) for name in names):
        raise NotServedError(f"{node.op_type} with a scale that repeats along the row has no kernel")
    vectors = [lowering.dense(name) for name in names]
    x = rows_of(lowering, node.inputs[0], axis)
    x = viewed_as(x, (*x.shape[:2], 1, x.shape[2]), (*x.strides[:2], 0, x.strides[2]))
    steps = [0 if is_one(prod(each.shape)) and not is_one(x.shape[-1]) else 1 for each in vectors]
    scales = [viewed_as(each, x.shape, (0, 0, 0, step)) for each, step in zip(vectors, steps, strict=True)]
    _normalize(lowering, node, x, scales, centered=node.op_type == "LayerNormalization")


@serves("InstanceNormalization", "GroupNormalization")
def group_normalization(lowering: Lowering, node: Node) -> None:
    """Lower a normalisation over the positions of channels or of groups of channels."""
    x = lowering.dense(node.inputs[0])
    count, channels, *space = x.shape
    groups = channels if node.op_type == "InstanceNormalization" else int(node.attrs["num_groups"])
    shape = (count, groups, channels // groups, prod(space))
    scales = []
    for name in node.inputs[1:3]:
        vector = lowering.dense(name)
        each = vector.shape[0] == channels  # before opset 21 one a group
        strides = (0, shape[2], 1, 0) if each else (0, 1, 0, 0)
        scales.append(viewed_as(vector, shape, strides))
    _normalize(lowering, node, dense_as(x, shape), scales, centered=True)


def _normalize(lowering: Lowering, node: Node, x: Plain, scales: list[Plain], centered: bool) -> None:
    """Emit one call for ``x`` as ``(rows, rows, J, I)``."""
    require_types(lowering, node, len(node.inputs), layer_norm.FAMILY.types)
    if prod(x.shape) == 0:
        raise NotServedError("a normalisation of nothing has no kernel")
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    if not normalizes(lowering.constant(node.inputs[1]), epsilon):
        raise NotServedError(f"{node.op_type} with so large or small a scale has no kernel")
    factor = lowering.packed((), f"epsilon {epsilon!r}", (1,), "float32", lambda: np.array([epsilon], np.float32))
    out = dense_as(lowering.new_plain(node.outputs[0]), x.shape)
    name = node.op_type if node.op_type == "RMSNormalization" else "LayerNormalization"
    variant = lowering.choose(layer_norm.FAMILY)
    steps = [scale.strides[-1] for scale in scales]
    desc = layer_norm.describe(name, centered, steps, rounding_of_results(node), variant, lowering.impl_mode(node))
    lowering.emit(desc, (with_inner_stride(x, 1), factor, *scales, with_inner_stride(out, 1)), node)
