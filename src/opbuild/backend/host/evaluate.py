"""The host backend: one node evaluated on numpy arrays.

It serves operators that have no kernel, folds constants, and is what compiled kernels are checked against.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import IMPLEMENTATIONS, ON_TEXT, TEXT, Implementation
from opbuild.errors import OutOfRangeError, RunError, UnsupportedOperatorError
from opbuild.graph.indices import require_indices
from opbuild.graph.types import Array, Node
from opbuild.operations.evaluation import apply
from opbuild.operations.table import BY_TYPE

__all__ = ["evaluate", "evaluate_native", "is_native"]


def _is_operation(node: Node) -> bool:
    """Return whether a node is one elementwise operation of our own."""
    return node.domain == "opbuild" and node.op_type in BY_TYPE


def is_native(node: Node) -> bool:
    """Return whether numpy serves the node here, rather than onnx's reference evaluator."""
    if _is_operation(node):
        return True
    if node.op_type == "BatchNormalization" and node.attrs.get("training_mode", 0):
        return False
    if node.op_type == "Resize":
        from opbuild.graph.tables import is_plain

        if not is_plain(node):
            return False
    return (node.domain, node.op_type) in IMPLEMENTATIONS


def evaluate_native(node: Node, inputs: Sequence[Array | None], opset: int) -> list[Array]:
    """Return the outputs of a node that needs no onnx, as ``evaluate`` does.

    Raises:
        RunError: As ``evaluate``.
        UnsupportedOperatorError: If numpy does not serve the node here.
    """
    if not is_native(node):
        raise UnsupportedOperatorError(
            f"{node.op_type} node {node.name!r} needs the onnx package to be evaluated", "install onnx"
        )
    return evaluate(node, inputs, opset)


def evaluate(node: Node, inputs: Sequence[Any], opset: int) -> list[Any]:
    """Return the values of a node's outputs.

    Args:
        node: An operator of the newest operator set, or one of domain ``opbuild`` named after an operation of
            ``operations/table.py``.
        inputs: The values of its inputs: arrays (of text with the dtype ``object``), lists for sequences, None for an
            empty optional value and for an absent input. Results may be views of them.
        opset: The operator set that the node speaks.

    Returns:
        One such value for each of ``node.outputs``.

    Raises:
        RunError: If the operator fails on these values; the message names the node.
        UnsupportedOperatorError: If no implementation is known.
    """
    require_indices(node, inputs)
    if not is_native(node):
        if node.domain == "opbuild":
            raise UnsupportedOperatorError(
                f"{node.op_type} node {node.name!r}: the host backend has no such operator", "give it a kernel"
            )
        from opbuild.backend.host.reference import evaluate_reference

        return evaluate_reference(node, inputs, opset)
    try:
        if _is_operation(node):
            return [apply(BY_TYPE[node.op_type].name, *(np.asarray(value) for value in inputs if value is not None))]
        with np.errstate(all="ignore"):
            return [_value(value) for value in _implementation(node, inputs)(node, inputs)]
    except OutOfRangeError:
        raise
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, ZeroDivisionError, OverflowError) as error:
        shown = ", ".join(map(_value_text, inputs))
        raise RunError(
            f"{node.op_type} node {node.name!r} failed on the host: {error}; its inputs are {shown}",
            "check the values that reach this node",
        ) from error


def _implementation(node: Node, inputs: Sequence[Any]) -> Implementation:
    known = node.domain, node.op_type
    if (_makes_text(node) or any(map(_is_text, inputs))) and known in ON_TEXT:
        return ON_TEXT[known]
    return IMPLEMENTATIONS[known]


def _makes_text(node: Node) -> bool:
    return node.op_type == "Cast" and node.attrs["to"] == TEXT


def _is_text(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _value_text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{'text' if _is_text(value) else value.dtype}{list(value.shape)}"
    return "absent" if value is None else f"a sequence of {len(value)}"


def _value(value: Any) -> Any:
    """Return a result as a value of a network: an array, a sequence, or None for an empty optional value."""
    if isinstance(value, str):  # numpy gives an element of a tensor of text without dimensions
        from opbuild.backend.host.strings import text_array

        return text_array([value], ())
    return value if value is None or isinstance(value, list) else np.asarray(value)
