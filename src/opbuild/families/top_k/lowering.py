"""Lowering of TopK."""

from __future__ import annotations

from math import prod

import numpy as np

from opbuild.families.top_k import family as top_ks
from opbuild.graph.extents import is_one
from opbuild.graph.types import Node, TensorType
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import ASKED, NotServedError, ask, serves
from opbuild.lowering.strided import broadcast, dense_as, transposed


@serves("TopK")
def top_k(lowering: Lowering, node: Node) -> None:
    """Lower TopK: where the elements stand, then the elements that stand there."""
    type_ = lowering.type(node.inputs[0])
    if type_.dtype not in top_ks.FAMILY.types:
        raise NotServedError(f"TopK of {type_.dtype} has no kernel")
    axis = int(node.attrs.get("axis", -1)) % max(1, len(type_.shape))
    values, indices = (*node.outputs, "")[:2]
    kind = lowering.type(values or indices)
    x, shape = lowering.dense(node.inputs[0]), (*type_.shape[:axis], kind.shape[axis], *type_.shape[axis + 1 :])
    places = lowering.new_plain(indices) if indices else lowering.temporary(TensorType("int64", shape))
    target = lowering.new_plain(values) if values else None
    if not prod(shape):
        return
    outer, extent, inner = prod(type_.shape[:axis]), type_.shape[axis], prod(type_.shape[axis + 1 :])
    variant = lowering.choose(top_ks.FAMILY, extent, shape[axis])
    desc = top_ks.describe(not node.attrs.get("largest", 1), type_.dtype, is_one(inner), variant)
    # The axis comes last here, innermost in the kernel.
    turned = [
        transposed(dense_as(value, (outer, count, inner)), (0, 2, 1))
        for value, count in ((x, extent), (places, shape[axis]))
    ]
    wanted = broadcast(lowering.packed((), "zero int32", (), "int32", lambda: np.zeros((), np.int32)), (shape[axis],))
    lowering.emit(desc, (turned[0], wanted, turned[1]), node)
    if target is not None:
        attrs = {"kind": "elements", "axis": len(shape) - 1 - axis}
        ask(lowering, (ASKED, "Gather"), node, (x, places, target), attrs, "GatherElements")
