"""Lowering of running sums and products."""

from __future__ import annotations

from math import prod

import numpy as np

from opbuild.families.scan import family as scans
from opbuild.graph.types import Node
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.strided import dense_as


@serves("CumSum", "CumProd")
def scan(lowering: Lowering, node: Node) -> None:
    """Lower CumSum and CumProd along an axis that is known when the network is built."""
    type_, axis = lowering.type(node.inputs[0]), lowering.constant(node.inputs[1])
    if type_.dtype not in scans.FAMILY.types:
        raise NotServedError(f"{node.op_type} of {type_.dtype} has no kernel")
    if axis is None or not type_.shape:
        raise NotServedError(f"{node.op_type} along an axis known only at run time, or of a scalar, has no kernel")
    x, out = lowering.dense(node.inputs[0]), lowering.new_plain(node.outputs[0])
    if not type_.size:
        return
    number = int(np.asarray(axis).reshape(-1)[0]) % len(type_.shape)
    count, columns = type_.shape[number], prod(type_.shape[number + 1 :])
    shape = (type_.size // (count * columns), count, columns)
    variant = lowering.choose(scans.FAMILY, columns)
    exclusive, reverse = (bool(node.attrs.get(name, 0)) for name in ("exclusive", "reverse"))
    mode = lowering.impl_mode(node, differs=type_.dtype == "float32")
    desc = scans.describe(node.op_type, exclusive, reverse, type_.dtype, variant, mode)
    lowering.emit(desc, [dense_as(value, shape) for value in (x, out)], node)
