"""Constant folding: values known when the network is built are computed then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from opbuild.errors import ModelError, RunError
from opbuild.graph.constants import ConstantValues
from opbuild.graph.extents import is_open
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.infer import type_of
from opbuild.graph.types import TABLE, Array, Graph, Node, TensorType

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

    A filled tensor (ConstantOfShape, Expand of a scalar) becomes a view of one element, not a copy.

    Args:
        graph: The graph.
        evaluate: Evaluates a node. A node that it cannot evaluate stays.
        but: A type of operators that stay.
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
