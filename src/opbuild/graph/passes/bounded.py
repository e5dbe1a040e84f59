"""Evaluating nodes while a network is built, in bounded memory: a small model must not fold into gigabytes."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import ReferenceType, ref

import numpy as np

from opbuild.errors import RunError
from opbuild.graph.passes.fold import Evaluate
from opbuild.graph.passes.infer import has_rule, infer_node, type_of
from opbuild.graph.passes.node_error_context import node_error_context
from opbuild.graph.types import Array, Node, TensorType

MOST_GROWTH = 2**30
"""Bytes that folding may make of what is small. What would be more is computed when the network runs."""

ALLOWED = 8
"""Bytes that folding may make for each byte of the model's own constants: a weight is cast, scaled, turned over."""

_VIEWS = frozenset(("ConstantOfShape", "Dropout", "Expand", "Identity"))
"""Operators whose results take no memory of their own, whatever their shape is."""


class Bounded:
    """Evaluates nodes as another function does, until they have made ``MOST_GROWTH`` bytes more than is allowed.

    All that was made counts, read or not: whoever folds may keep it until the end.

    Args:
        evaluate: Evaluates a node whose inputs are known.
    """

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._left = MOST_GROWTH
        self._own = _Arrays()

    @classmethod
    def of(cls, evaluate: Evaluate) -> Bounded:
        """Return a function that evaluates in bounded memory, itself if it does already."""
        return evaluate if isinstance(evaluate, cls) else cls(evaluate)

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
            RunError: If the results would be too large, or cannot be computed.
            ModelError: If the node is not valid.
        """
        given = [value for value in inputs if value is not None]
        own = [value for value in given if value not in _MADE and self._own.add(value)]
        self._left += ALLOWED * sum(map(_memory, own))
        if node.op_type not in _VIEWS:
            results = _types(node, inputs) if types is None else types
            if sum(each.nbytes for each in results) > self._left:
                raise RunError(f"{node.op_type} node {node.name!r} is too large to be folded", "make it smaller")
        with node_error_context(node):
            found = self._evaluate(node, inputs, opset)
        for value in found:
            if isinstance(value, np.ndarray) and not any(np.may_share_memory(value, each) for each in given):
                self._left -= _memory(value) if _MADE.add(value) else 0
        return found


_FEW = 1000
"""References that may be kept of arrays that are gone."""


class _Arrays:
    """A set of arrays, which it does not keep."""

    def __init__(self) -> None:
        self._known: dict[int, ReferenceType[Array]] = {}
        self._most = _FEW

    def __contains__(self, value: Array) -> bool:
        known = self._known.get(id(value))
        return known is not None and known() is value

    def add(self, value: Array) -> bool:
        """Add an array; return whether it was not there."""
        if value in self:
            return False
        if len(self._known) >= self._most:  # without those that are gone; a callback of each would make a cycle
            self._known = {number: known for number, known in self._known.items() if known() is not None}
            self._most = 2 * len(self._known) + _FEW
        self._known[id(value)] = ref(value)
        return True


_MADE = _Arrays()
"""What folding made, which is no constant of the model for the passes that come after."""


def _types(node: Node, inputs: Sequence[Array | None]) -> tuple[TensorType, ...]:
    if not has_rule(node.domain, node.op_type):
        raise RunError(f"{node.op_type} node {node.name!r}: how large its result is cannot be told", "fold it before")
    return infer_node(node, [None if value is None else type_of(value) for value in inputs], inputs)


def _memory(value: Array) -> int:
    """Return the bytes that an array takes: a view of one element takes one element's."""
    extents = [extent for extent, stride in zip(value.shape, value.strides, strict=True) if stride]
    return int(np.prod(extents, dtype=np.float64)) * value.itemsize if value.size else 0
