"""The types of what decision trees give: scores, and names of classes, which are text."""

from __future__ import annotations

from opbuild.graph.shape_rules import Call, Types, rule
from opbuild.graph.types import TensorType


@rule("TreeEnsemble", domain="opbuild")
def _ensemble(call: Call) -> Types:
    rows, targets, weights = call.rank(0, 2), call.rank(1, 2), call.type(5)
    return (TensorType(weights.dtype, (rows[0], targets[0] * targets[1])),)


@rule("ClassNames", domain="opbuild")
def _names(call: Call) -> Types:
    return (TensorType("object", call.shape(0)),)
