"""Static inference of types: one rule an operator, no onnx.

``infer_node`` types one node (a tracer calls it at each step); ``infer`` types a whole graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opbuild.errors import ModelError, ShapeError, UnsupportedOperatorError
from opbuild.graph.element_types import require_known
from opbuild.graph.shape_rules import RULES, Rule, ShapeCall
from opbuild.graph.types import Array, Graph, Node, TensorType

__all__ = ["check_sizes", "has_rule", "infer", "infer_node", "register_rule", "types_with_rule"]


def has_rule(domain: str, op_type: str) -> bool:
    """Return whether an operator has a rule of its own."""
    return (domain, op_type) in RULES


def types_with_rule() -> frozenset[str]:
    """Return the operator types of all domains that have a rule."""
    return frozenset(op_type for _, op_type in RULES)


def register_rule(op_type: str, function: Rule, domain: str = "opbuild") -> None:
    """Add the rule of an operator that a user defines; it replaces an earlier one."""
    RULES[domain, op_type] = function


def infer_node(
    node: Node,
    types: Sequence[TensorType | None],
    constants: Sequence[Array | None],
) -> tuple[TensorType, ...]:
    """Return the types of a node's outputs.

    Args:
        node: The operator, in the newest operator set or in domain ``opbuild``.
        types: The type of each input, None for an absent one.
        constants: The value of each input that is known, else None.

    Raises:
        ShapeError: If the shapes do not fit; the message names the node and its inputs' types.
        DTypeError: If the element types do not fit or are not supported.
        UnsupportedOperatorError: If the operator has no rule, or its shape depends on values that are not known.
    """
    found = RULES.get((node.domain, node.op_type))
    if found is None:
        raise UnsupportedOperatorError(
            f"{node.op_type} node {node.name!r}: opbuild has no shape rule for this operator",
            "check its name and domain, or replace it by operators that opbuild knows",
        )
    call = ShapeCall(node, types, constants)
    try:
        results = found(call)[: len(node.outputs)]
        require_known(call)
        check_sizes(node, results)
        return results
    except ModelError:
        raise
    except (TypeError, ValueError, IndexError, OverflowError, ZeroDivisionError) as error:
        call.fail(
            f"its attributes or inputs are not valid ({error})", "check the node's attributes against ONNX's reference"
        )


def check_sizes(node: Node, results: Sequence[TensorType]) -> None:
    """Check the types that a rule found for a node's outputs, before anybody makes memory for them.

    Raises:
        ShapeError: If no tensor can have one of them.
    """
    for each in results:
        if each.problem:
            raise ShapeError(
                f"{node.op_type} node {node.name!r}: its output would be {each.problem}", "give it smaller inputs"
            )


def infer(graph: Graph, types: Mapping[str, TensorType] | None = None) -> Graph:
    """Return the graph with the type of every value, found from its inputs and constants.

    Args:
        graph: A graph whose ``types`` hold at least those of its inputs.
        types: The inputs' types, if they are not to be taken from ``graph.types``.

    Raises:
        ShapeError, DTypeError, UnsupportedOperatorError: As ``infer_node``.
    """
    given = graph.types if types is None else types
    known = {name: given[name] for name in graph.inputs}
    known.update((name, type_of(value)) for name, value in graph.constants.items())
    for node in graph.nodes:
        found = infer_node(
            node,
            [known[name] if name else None for name in node.inputs],
            [graph.constants.get(name) for name in node.inputs],
        )
        known.update((name, each) for name, each in zip(node.outputs, found, strict=False) if name)
    return graph.with_(types=known)


def is_text(value: Array) -> bool:
    """Return whether an array of objects holds text."""
    return any(isinstance(each, str) for each in value.flat[:1])


def type_of(value: Array) -> TensorType:
    """Return the type of an array; objects stand for text, or for integers that follow from open extents."""
    if value.dtype != object:
        return TensorType(str(value.dtype), value.shape)
    return TensorType("object" if is_text(value) else "int64", value.shape)
