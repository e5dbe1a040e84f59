"""onnx's reference evaluator for one node that no kernel and no numpy implementation here serves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from opbuild.errors import RunError, UnsupportedOperatorError
from opbuild.graph.indices import UNCHECKED
from opbuild.graph.types import Array, Node
from opbuild.platform.locks import Lock

_cache: dict[tuple[int, int], tuple[Node, Any, list[str]]] = {}
_lock = Lock()
_CACHE_LIMIT = 4096


def evaluate_reference(node: Node, inputs: Sequence[Array | None], opset: int) -> list[Array]:
    """Return a node's outputs.

    Args:
        node: The node. If it has graphs, ``attrs["captures"]`` names what they read from outside, whose values follow
            the formal inputs, and ``attrs["opset"]`` the operator set that they speak.
        inputs: The values of its inputs, None for an absent one.
        opset: The operator set that the node speaks.

    Raises:
        UnsupportedOperatorError: If the evaluator does not know the operator.
        RunError: If it fails on these values.
    """
    evaluator, names = _evaluator(node, opset)
    feeds = {name: value for name, value in zip(names, inputs, strict=True) if name and value is not None}
    try:
        with np.errstate(all="ignore"):
            found = iter(evaluator.run(None, feeds))
    except Exception as error:
        raise RunError(
            f"{node.op_type} node {node.name!r} failed on the host: {' '.join(str(error).split())[:300]}",
            "check the values that reach this node",
        ) from error
    results = [_value(node, next(found)) if name else np.empty(0) for name in node.outputs]
    floats = _float_outputs(node.op_type, node.domain)
    return [each.astype(np.float32) if index in floats else each for index, each in enumerate(results)]


@lru_cache(maxsize=1024)
def _float_outputs(op_type: str, domain: str) -> frozenset[int]:
    """Return the outputs that are of float32 whatever the inputs are; the evaluator computes some in their type."""
    import onnx

    if domain != "ai.onnx.ml":
        return frozenset()
    outputs = onnx.defs.get_schema(op_type, domain).outputs
    return frozenset(index for index, each in enumerate(outputs) if each.type_str == "tensor(float)")


def _value(node: Node, value: Any) -> Any:
    """Return a result as a value of a network: tensors of text hold Python's strings."""
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        return array.astype(object) if array.dtype.kind in "US" else array
    if value is None or isinstance(value, list):
        return value
    raise UnsupportedOperatorError(
        f"{node.op_type} node {node.name!r} makes a {type(value).__name__}, which opbuild does not support",
        "use tensors, sequences or optional values instead",
    )


def _evaluator(node: Node, opset: int) -> tuple[Any, list[str]]:
    with _lock:
        known = _cache.get((id(node), opset))
        if known is not None and known[0] is node:
            return known[1], known[2]
    evaluator, names = _make(node, opset)
    with _lock:
        if len(_cache) >= _CACHE_LIMIT:
            _cache.clear()
        _cache[id(node), opset] = (node, evaluator, names)
    return evaluator, names


def _make(node: Node, opset: int) -> tuple[Any, list[str]]:
    import onnx
    from onnx import numpy_helper
    from onnx.reference import ReferenceEvaluator

    if node.proto is not None:
        proto = onnx.NodeProto.FromString(node.proto)
    else:
        attrs: dict[str, Any] = {
            name: numpy_helper.from_array(value, name) if isinstance(value, np.ndarray) else value
            for name, value in node.attrs.items()
            if name != UNCHECKED and not (isinstance(value, tuple) and not value)
        }
        proto = onnx.helper.make_node(node.op_type, node.inputs, node.outputs, node.name, domain=node.domain, **attrs)
    names = [*proto.input, *node.attrs.get("captures", ())]
    graph = onnx.helper.make_graph(
        [proto],
        "node",
        [onnx.helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(names) if name],
        [onnx.helper.make_empty_tensor_value_info(name) for name in proto.output if name],
    )
    opsets = [onnx.helper.make_opsetid("", int(node.attrs.get("opset", opset)))]
    if node.domain:
        versions = (schema.since_version for schema in onnx.defs.get_all_schemas() if schema.domain == node.domain)
        opsets.append(onnx.helper.make_opsetid(node.domain, max(versions, default=1)))
    try:
        return ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=opsets)), names
    except Exception as error:
        raise UnsupportedOperatorError(
            f"{node.op_type} node {node.name!r}: no backend runs this operator: {' '.join(str(error).split())[:300]}",
            "replace it by operators that opbuild knows",
        ) from error
