"""Evaluating nodes while a network is built, in bounded memory: a small model must not fold into gigabytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.errors import RunError
from opbuild.graph.passes.blame import blaming
from opbuild.graph.passes.fold import Evaluate
from opbuild.graph.passes.infer import has_rule, infer_node, type_of
from opbuild.graph.types import Array, Node, TensorType

MOST_GROWTH = 2**30
"""Bytes that the constants of one network may gain by folding. What would be more is computed when the network runs."""

_VIEWS = frozenset(("ConstantOfShape", "Dropout", "Expand", "Identity"))
"""Operators whose results take no memory of their own, whatever their shape is."""


class Bounded:
    """Evaluates nodes as another function does, until they have gained ``MOST_GROWTH`` bytes over their inputs.

    Args:
        evaluate: Evaluates a node whose inputs are known.
    """

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._left = MOST_GROWTH

    def __call__(
        self,
        node: Node,
        inputs: Sequence[Array | None],
        opset: int,
        types: Sequence[TensorType] | None = None,
    ) -> Sequence[Array]:
        """Return the values of a node's outputs.

        Args:
            node: The node.
            inputs: The values of its inputs, None for an absent one.
            opset: The operator set that it speaks.
            types: The types of its outputs; none if nobody can tell them. None lets the operator's rule find them.

        Raises:
            RunError: If the results would be too large, or can not be computed.
            ModelError: If the node is not valid.
        """
        if node.op_type not in _VIEWS:
            given = sum(_memory(value) for value in inputs if value is not None)
            results = _types(node, inputs) if types is None else types
            gained = sum(each.nbytes for each in results) - given
            if gained > self._left:
                raise RunError(f"{node.op_type} node {node.name!r} is too large to be folded", "make it smaller")
            self._left -= max(gained, 0)
        with blaming(node):
            return self._evaluate(node, inputs, opset)


def _types(node: Node, inputs: Sequence[Array | None]) -> tuple[TensorType, ...]:
    if not has_rule(node.domain, node.op_type):
        raise RunError(f"{node.op_type} node {node.name!r}: how large its result is can not be told", "fold it before")
    return infer_node(node, [None if value is None else type_of(value) for value in inputs], inputs)


def _memory(value: Array) -> int:
    """Return the bytes that an array takes: a view of one element takes one element's."""
    extents = [extent for extent, stride in zip(value.shape, value.strides, strict=True) if stride]
    return int(np.prod(extents, dtype=np.float64)) * value.itemsize if value.size else 0
