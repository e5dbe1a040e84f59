"""Gradients of what ranks do together: of the sum of what is differentiated on all of them."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.graph.gradients.registry import Call, gradient
from opbuild.graph.graph_builder import Value
from opbuild.graph.types import COLLECTIVES


@gradient("AllReduce", "AllGather", "ReduceScatter", domain=COLLECTIVES)
def together(call: Call) -> Sequence[Value | None]:
    """Give each rank what all ranks' results get for its elements: the same operator, gathered and scattered turned."""
    op_type, attrs = call.node.op_type, {**call.node.attrs, "reduction": "sum"}
    if op_type != "AllGather" and call.node.attrs.get("reduction") != "sum":
        call.refuse(f"its reduction is {call.node.attrs.get('reduction')}, not sum")
    if op_type == "ReduceScatter":
        del attrs["reduction"]
    back = {"AllGather": "ReduceScatter", "ReduceScatter": "AllGather"}.get(op_type, op_type)
    return (call.of(back, call.gradient(), domain=COLLECTIVES, **attrs),)
