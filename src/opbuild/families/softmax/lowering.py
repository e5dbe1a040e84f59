"""Lowering of softmax."""

from __future__ import annotations

from functools import partial
from math import prod

from opbuild.families.softmax import family as softmaxes
from opbuild.graph.extents import is_one
from opbuild.graph.types import Node
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.operands import Plain
from opbuild.lowering.rows import require_types, rounding_of_results, rows_of
from opbuild.lowering.strided import dense_as, is_short, transposed, with_inner_stride


@serves("Softmax", "LogSoftmax")
def softmax(lowering: Lowering, node: Node) -> None:
    """Lower a softmax over one axis."""
    type_ = lowering.type(node.inputs[0])
    require_types(lowering, node, 1, softmaxes.FAMILY.types)
    axis = int(node.attrs.get("axis", -1)) % max(1, len(type_.shape))
    inner = prod(type_.shape[axis + 1 :])
    if not type_.shape:
        raise NotServedError("a softmax of a scalar has no kernel")
    if type_.size == 0:
        lowering.new_plain(node.outputs[0])
        return
    if is_one(inner):
        x = rows_of(lowering, node.inputs[0], axis)
    else:
        x = dense_as(lowering.dense(node.inputs[0]), (prod(type_.shape[:axis]), type_.shape[axis], inner))
    out = dense_as(lowering.new_plain(node.outputs[0]), x.shape)
    is_inner = is_one(inner)
    turned = partial(_emit_turned, lowering, node, x, out)
    rows = partial(_emit_softmax, lowering, node, x, out, is_inner=is_inner)
    short = is_short(x.shape[-1]) if is_inner and not lowering.is_for_device(softmaxes.FAMILY.name) else 0
    lowering.either([(short, turned), (1, rows)])


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
    variant = lowering.choose(softmaxes.FAMILY, log, is_inner, columns, row)
    zeros = str(node.attrs.get("zeros", ""))
    return softmaxes.describe(log, is_inner, rounding_of_results(node), zeros, variant, mode, is_turned=is_turned)
