"""Constant folding: values known when the network is built are computed then, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from opbuild.errors import ModelError, RunError
from opbuild.graph.constants import ConstantValues
from opbuild.graph.extents import is_open
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.infer import has_rule, infer_node, node_error_context, type_of
from opbuild.graph.types import TABLE, Array, Graph, Node, TensorType
from opbuild.platform.finalizers import WeakValues

Evaluate: TypeAlias = Callable[[Node, Sequence[Array | None], int], Sequence[Array]]
"""Evaluates a node whose inputs are known: ``(node, arrays, opset) -> arrays``."""

RANDOM = frozenset(
    ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout")
)
"""Operators whose result differs at each run: never folded. (Dropout goes away by itself.)"""


DEQUANTIZE = "DequantizeLinear"
"""The operator that is left of what is known until kernels on integers were chosen: they read weights as bytes."""


def fold(graph: Graph, evaluate: Evaluate, but: str = "") -> Graph:
    """Replace nodes whose inputs are all known by constants; Shape and Size need only their input's type.

    A filled tensor (ConstantOfShape, Expand of a scalar) becomes a view of one element, not a copy. What cannot be
    evaluated stays, and operators of the type ``but``.
    """
    constants, types = ConstantValues(graph.constants), dict(graph.types)
    kept: list[Node] = []
    for node in graph.nodes:
        known = None if node.op_type == but else _values(node, graph, constants, evaluate)
        if known is None:
            kept.append(node)
            continue
        for name, value in zip(node.outputs, known, strict=False):
            if name:
                constants[name], types[name] = value, type_of(value)
    return eliminate_dead(graph.with_(nodes=tuple(kept), constants=constants, types=types))


def _values(node: Node, graph: Graph, constants: Mapping[str, Array], evaluate: Evaluate) -> Sequence[Array] | None:
    if node.domain not in ("", "opbuild") or node.op_type in (*RANDOM, TABLE):
        return None
    if node.op_type in ("Shape", "Size") and not node.domain:
        return (static_value(node, graph.types[node.inputs[0]]),)
    if any(name and name not in constants for name in node.inputs):
        return None
    if any(is_open(graph.types[name].shape) for name in node.outputs if name):
        return None
    inputs = [constants[name] if name else None for name in node.inputs]
    if any(value is not None and value.dtype == object for value in inputs):  # it follows from open extents
        return None
    try:
        return evaluate(node, inputs, graph.opset)
    except (RunError, ModelError):
        return None


def static_value(node: Node, kind: TensorType) -> Array:
    """Return the value of a Shape or Size node, which the type of its input decides; objects if extents are open."""
    value = kind.size if node.op_type == "Size" else kind.shape[node.attrs.get("start", 0) : node.attrs.get("end")]
    return np.array(value, object if is_open(kind.shape) else np.int64)


MOST_GROWTH = 2**30
"""Bytes that folding may make of what is small. What would be more is computed when the network runs."""

ALLOWED = 8
"""Bytes that folding may make for each byte of the model's own constants: a weight is cast, scaled, turned over."""

_VIEWS = frozenset(("ConstantOfShape", "Dropout", "Expand", "Identity"))
"""Operators whose results take no memory of their own, whatever their shape is."""


class Bounded:
    """Evaluates nodes as another function does, until they have made ``MOST_GROWTH`` bytes more than is allowed.

    All that was made counts, read or not: whoever folds may keep it until the end.
    """

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._left = MOST_GROWTH
        self._own = _Arrays()  # of the model

    @classmethod
    def of(cls, evaluate: Evaluate) -> Bounded:
        """Return a function that evaluates in bounded memory, itself if it does already."""
        return evaluate if isinstance(evaluate, cls) else cls(evaluate)

    def __call__(
        self, node: Node, inputs: Sequence[Array | None], opset: int, types: Sequence[TensorType] | None = None
    ) -> Sequence[Array]:
        """Return the values of a node's outputs, whose types the operator's rule finds unless they are given.

        Raises:
            RunError: If the results would be too large, or cannot be computed.
            ModelError: If the node is not valid.
        """
        given = [value for value in inputs if value is not None]
        own = [value for value in given if not _has(_MADE, value) and _add(self._own, value)]
        self._left += ALLOWED * sum(map(_memory, own))
        if node.op_type not in _VIEWS:
            results = _types(node, inputs) if types is None else types
            if sum(each.nbytes for each in results) > self._left:
                raise RunError(f"{node.op_type} node {node.name!r} is too large to be folded", "make it smaller")
        with node_error_context(node):
            found = self._evaluate(node, inputs, opset)
        for value in found:
            if isinstance(value, np.ndarray) and not any(np.may_share_memory(value, each) for each in given):
                self._left -= _memory(value) if _add(_MADE, value) else 0
        return found


_Arrays = WeakValues[int, Array]
"""A set of arrays by their identities, which it does not keep."""

_MADE = _Arrays()
"""What folding made, which is no constant of the model for the passes that come after."""


def _has(arrays: _Arrays, value: Array) -> bool:
    return arrays.get(id(value)) is value


def _add(arrays: _Arrays, value: Array) -> bool:
    """Add an array; return whether it was not there."""
    is_new = not _has(arrays, value)
    arrays[id(value)] = value
    return is_new


def _types(node: Node, inputs: Sequence[Array | None]) -> tuple[TensorType, ...]:
    if not has_rule(node.domain, node.op_type):
        raise RunError(f"{node.op_type} node {node.name!r}: how large its result is cannot be told", "fold it before")
    return infer_node(node, [None if value is None else type_of(value) for value in inputs], inputs)


def _memory(value: Array) -> int:
    """Return the bytes that an array takes: a view of one element takes one element's."""
    extents = [extent for extent, stride in zip(value.shape, value.strides, strict=True) if stride]
    return int(np.prod(extents, dtype=np.float64)) * value.itemsize if value.size else 0
