"""Lowering of softmax and of the normalisations that look at the data: layer, group, instance, root mean square."""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from opbuild.families.layer_norm import family as layer_norm
from opbuild.families.softmax import family as softmaxes
from opbuild.graph.elementwise import rounding_of
from opbuild.graph.extents import is_one
from opbuild.graph.factors import normalizes
from opbuild.graph.types import Node
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Lowering, NotServedError, rule
from opbuild.lowering.operands import Plain
from opbuild.lowering.rules.matmul import epilogue_of
from opbuild.lowering.strided import dense_as, is_short, merge, padded, transposed, viewed_as, with_inner_stride


@rule("Softmax", "LogSoftmax")
def softmax(lowering: Lowering, node: Node) -> None:
    """Lower a softmax over one axis."""
    type_ = lowering.type(node.inputs[0])
    _float_only(lowering, node, 1)
    axis = int(node.attrs.get("axis", -1)) % max(1, len(type_.shape))
    inner = prod(type_.shape[axis + 1 :])
    if not type_.shape:
        raise NotServedError("a softmax of a scalar has no kernel")
    if type_.size == 0:
        lowering.new_plain(node.outputs[0])
        return
    if is_one(inner):
        x = _rows(lowering, node.inputs[0], axis)
    else:
        x = dense_as(lowering.dense(node.inputs[0]), (prod(type_.shape[:axis]), type_.shape[axis], inner))
    out = dense_as(lowering.new_plain(node.outputs[0]), x.shape)
    is_inner = is_one(inner)
    turned = partial(_emit_turned, lowering, node, x, out)
    rows = partial(_emit_softmax, lowering, node, x, out, is_inner=is_inner)
    lowering.either([(is_short(x.shape[-1]) if is_inner else 0, turned), (1, rows)])


def _emit_turned(lowering: Lowering, node: Node, *rows: Plain) -> None:
    """Emit a softmax of short rows, side by side."""
    turned = [transposed(each, (0, 2, 1)) for each in rows]
    lowering.emit(_softmax(lowering, node, turned[0], is_inner=False, is_turned=True), turned, node)


def _emit_softmax(lowering: Lowering, node: Node, x: Plain, out: Plain, *, is_inner: bool) -> None:
    desc = _softmax(lowering, node, x, is_inner=is_inner)
    lowering.emit(desc, (with_inner_stride(x, 1), with_inner_stride(out, 1)), node)


def _softmax(lowering: Lowering, node: Node, x: Plain, *, is_inner: bool, is_turned: bool = False) -> OpDesc:
    log, mode = node.op_type == "LogSoftmax", lowering.impl_mode(node)
    columns, row = (1, x.shape[-1]) if is_inner else (x.shape[-1], x.shape[1])
    variant = lowering.choose(softmaxes.choose, log, is_inner, columns, row)
    zeros = str(node.attrs.get("zeros", ""))
    return softmaxes.describe(log, is_inner, _rounding(node), zeros, variant, mode, is_turned=is_turned)


@rule("LayerNormalization", "RMSNormalization")
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
    x = _rows(lowering, node.inputs[0], axis)
    x = viewed_as(x, (*x.shape[:2], 1, x.shape[2]), (*x.strides[:2], 0, x.strides[2]))
    steps = [0 if is_one(prod(each.shape)) and not is_one(x.shape[-1]) else 1 for each in vectors]
    scales = [viewed_as(each, x.shape, (0, 0, 0, step)) for each, step in zip(vectors, steps, strict=True)]
    _normalize(lowering, node, x, scales, centered=node.op_type == "LayerNormalization")


@rule("InstanceNormalization", "GroupNormalization")
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
    _float_only(lowering, node, len(node.inputs))
    if prod(x.shape) == 0:
        raise NotServedError("a normalisation of nothing has no kernel")
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    if not normalizes(lowering.constant(node.inputs[1]), epsilon):
        raise NotServedError(f"{node.op_type} with so large or small a scale has no kernel")
    factor = lowering.packed((), f"epsilon {epsilon!r}", (1,), "float32", lambda: np.array([epsilon], np.float32))
    out = dense_as(lowering.new_plain(node.outputs[0]), x.shape)
    name = node.op_type if node.op_type == "RMSNormalization" else "LayerNormalization"
    variant = lowering.choose(layer_norm.choose)
    steps = [scale.strides[-1] for scale in scales]
    desc = layer_norm.describe(name, centered, steps, _rounding(node), variant, lowering.impl_mode(node))
    lowering.emit(desc, (with_inner_stride(x, 1), factor, *scales, with_inner_stride(out, 1)), node)


def _rounding(node: Node) -> str:
    """Return the type of 16 bits to whose numbers a node rounds its results; empty if it does not."""
    return rounding_of(epilogue_of(node)[0])


def _rows(lowering: Lowering, name: str, axis: int) -> Plain:
    """Return a value as ``(rows, rows, elements)``: the axes from ``axis`` on as one dense row; a copy if needed."""
    for value in (lowering.plain(name), lowering.dense(name)):
        length = prod(value.shape[axis:])
        row_extents, row_strides = merge(value.shape[axis:], [value.strides[axis:]])
        extents, strides = merge(value.shape[:axis], [value.strides[:axis]])
        if len(extents) <= 2 and (not row_extents or (len(row_extents) == 1 and is_one(row_strides[0][0]))):
            outer = padded(extents, strides[0], 2)
            return viewed_as(value, (*outer[0], length), (*outer[1], 1))
    raise AssertionError("a dense value has one row dimension")


def _float_only(lowering: Lowering, node: Node, count: int) -> None:
    for name in (*node.inputs[:count], node.outputs[0]):
        if name and lowering.type(name).dtype not in softmaxes.FAMILY.types:
            raise NotServedError(f"{node.op_type} of {lowering.type(name).dtype} has no kernel")
