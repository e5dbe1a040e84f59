"""Which operators are written with others: what writes them is loaded for a network that may have some."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opbuild.frontend.rewriting import Scope
from opbuild.graph.types import Node

DOMAIN = "com.microsoft"
LEARNED = "ai.onnx.ml"

TREES = ("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor")
"""Operators of ``ai.onnx.ml`` that ``frontend.trees`` writes with others."""


def rewrites(domain: str, op_type: str) -> bool:
    """Return whether an operator is written with others of which onnx has no schema."""
    if op_type == "SimplifiedLayerNormalization":
        return True  # ONNX Runtime writes it into ONNX's own domain as well
    if domain != DOMAIN:
        return False
    from opbuild.frontend.microsoft import REWRITES

    return op_type in REWRITES


def rewrite_of(node: Node) -> Callable[[Node, Scope], Sequence[Node]] | None:
    """Return what writes a node with others; None if nothing does."""
    if node.domain == LEARNED and node.op_type in TREES:
        from opbuild.frontend.trees.rewrite import rewrite as trees

        return trees
    if node.domain == LEARNED:
        from opbuild.frontend import learned

        return learned.rewrite if node.op_type in learned.REWRITES else None
    if not rewrites(node.domain, node.op_type):
        return None
    from opbuild.frontend.microsoft import rewrite

    return rewrite
