"""Lowering of numbers that follow from extents and are read as data: constants of one size."""

from __future__ import annotations

from opbuild.graph.types import Node
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import serves
from opbuild.lowering.tables import table


@serves("opbuild.Table")
def numbers(lowering: Lowering, node: Node) -> None:
    """Lower Table, which is known when a size is bound."""
    kind = lowering.type(node.outputs[0])
    arguments = (*node.attrs["arguments"], kind.dtype)
    lowering.bind(node.outputs[0], table(lowering, node.text("table", ""), arguments, kind.shape, kind.dtype))
