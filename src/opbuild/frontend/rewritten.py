"""Which operators are written with others, and what writes them: loaded for a network that may have some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DOMAIN = "com.microsoft"

TREES = ("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor")
"""Operators of ``ai.onnx.ml`` that ``frontend.trees`` writes with others."""


def rewrites(domain: str, op_type: str) -> bool:
    """Return whether an operator is written with others."""
    if op_type == "SimplifiedLayerNormalization":
        return True  # ONNX Runtime writes it into ONNX's own domain as well
    if domain != DOMAIN:
        return is_trees(domain, op_type)
    from opbuild.frontend.microsoft import REWRITES

    return op_type in REWRITES


def is_trees(domain: str, op_type: str) -> bool:
    """Return whether an operator is one of decision trees; it has a schema, which is checked before."""
    return domain == "ai.onnx.ml" and op_type in TREES


def rewrite_of(domain: str, op_type: str) -> Callable[..., Any]:
    """Return what writes an operator with others."""
    if is_trees(domain, op_type):
        from opbuild.frontend.trees.rewrite import rewrite as trees

        return trees
    from opbuild.frontend.microsoft import rewrite

    return rewrite
