"""Lowering of ArgMax and ArgMin."""

from __future__ import annotations

from math import prod

from opbuild.families.arg_reduce import family as arg_reduces
from opbuild.graph.extents import is_one
from opbuild.graph.types import Node
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import dense_as, is_short, transposed


@serves("ArgMax", "ArgMin")
def arg_reduce(lowering: Lowering, node: Node) -> None:
    """Lower ArgMax and ArgMin over one axis."""
    type_ = lowering.type(node.inputs[0])
    if type_.dtype not in arg_reduces.FAMILY.types:
        raise NotServedError(f"{node.op_type} of {type_.dtype} has no kernel")
    axis = int(node.attrs.get("axis", 0)) % max(1, len(type_.shape))
    if type_.size == 0 or not type_.shape:
        raise NotServedError(f"{node.op_type} of nothing or of a scalar has no kernel")
    inner = prod(type_.shape[axis + 1 :])
    shape: tuple[int, ...] = (prod(type_.shape[:axis]), type_.shape[axis], inner)
    layout, kept = "outer", (shape[0], inner)
    if is_one(inner):
        layout, shape, kept = "inner", (1, shape[0], shape[1]), (1, shape[0])
    x = dense_as(lowering.dense(node.inputs[0]), shape)
    out = dense_as(lowering.new_plain(node.outputs[0]), kept)

    def emit_turned() -> None:
        turned = transposed(x, (0, 2, 1))
        lowering.emit(_position(lowering, node, "outer", turned, is_turned=True), (turned, out), node)

    short = is_short(shape[-1]) if is_one(inner) and not lowering.is_for_device(arg_reduces.FAMILY.name) else 0
    rows = lambda: lowering.emit(_position(lowering, node, layout, x), (x, out), node)  # noqa: E731
    lowering.either([(short, emit_turned), (1, rows)])


def _position(lowering: Lowering, node: Node, layout: str, x: Plain, *, is_turned: bool = False) -> OpDesc:
    variant = lowering.choose(arg_reduces.FAMILY, layout, x.shape[-1])
    last, dtype = bool(node.attrs.get("select_last_index", 0)), x.storage.dtype
    return arg_reduces.describe(node.op_type, layout, last, dtype, variant, is_turned=is_turned)
