"""Gradients of softmax and its logarithm, from what they computed."""

from __future__ import annotations

from opbuild.graph.gradients.broadcasting import total
from opbuild.graph.graph_builder import GraphBuilder, Value


def softmax_data(of: GraphBuilder, dy: Value, y: Value, axis: int) -> Value:
    """Return the gradient of a softmax's data: ``y * (dy - sum(y * dy))``."""
    weighted = of("Mul", y, dy)
    return of("Sub", weighted, of("Mul", y, total(of, weighted, (axis,), keepdims=True)))


def log_softmax_data(of: GraphBuilder, dy: Value, y: Value, axis: int) -> Value:
    """Return the gradient of a log-softmax's data: ``dy - exp(y) * sum(dy)``."""
    return of("Sub", dy, of("Mul", of("Exp", y), total(of, dy, (axis,), keepdims=True)))
