"""Attention as one node: two products with a softmax between them.

``opbuild.Attention`` reads queries ``(..., I, D)``, keys turned ``(..., D, J)``, values ``(..., J, E)`` and what its
``epilogue`` reads: the scores' expression over ``("acc",)``, the product of queries and keys, and ``("arg", n)`` at
input ``attrs["own_inputs"] + n``. ``accumulator``, ``scores`` and ``weights`` name the values that it does not store.
``apart`` says whether the expression is one that the product could not have as its own epilogue. If there is
``rounds``, weights and results are rounded to the numbers of this type of 16 bits; ``unrounded`` names what they are
before. If there is ``zeros``, it is that of the softmax: which rows are 0 instead of NaN. ``hiding`` says what hides
keys from queries, if that is known.
"""

from __future__ import annotations

from typing import Any

from opbuild.graph.elementwise import split_epilogue
from opbuild.graph.types import Node
from opbuild.operations.expression import ACC, Expression, from_json
from opbuild.platform.records import NamedTuple


class Hiding(NamedTuple):
    """The hiding of keys: a hidden one's weight is exactly 0 as long as keys and values are finite.

    Attributes:
        comparison: The part of the scores' expression that compares places.
        is_seen: Whether it is true for keys that are seen.
        number: How many keys, the first ones, a query sees, over the same operands; they do not depend on the key.
    """

    comparison: Expression
    is_seen: bool
    number: Expression


def split_attention(node: Node) -> tuple[Node, ...] | None:
    """Return an attention as the operators that it was made of, one by one; None if it is none."""
    if (node.domain, node.op_type) != ("opbuild", "Attention"):
        return None
    query, key, value, *operands = node.inputs
    scores, weights = str(node.attrs["scores"]), str(node.attrs["weights"])
    attrs = {"epilogue": node.attrs["epilogue"], "own_inputs": 2, "accumulator": node.attrs["accumulator"]}
    product = Node("MatMul", (query, key, *operands), (scores,), attrs, node.name, made_of=node.origins)
    parts: tuple[Node, ...] = (product,)
    if from_json(node.attrs["epilogue"]) == ACC:
        parts = (product.with_(attrs={}),)
    elif node.attrs["apart"]:
        parts = split_epilogue(product) or parts
    zeros = {"zeros": node.attrs["zeros"]} if "zeros" in node.attrs else {}
    rounded = [_rounding(node, place, own) for place, own in enumerate((1, 2))]
    return (
        *parts,
        Node("Softmax", (scores,), (weights,), {"axis": -1, **zeros, **rounded[0]}, node.name),
        Node("MatMul", (weights, value), node.outputs, rounded[1], node.name),
    )


def _rounding(node: Node, place: int, own: int) -> dict[str, Any]:
    """Return the attributes by which a part of an attention with so many inputs rounds its results."""
    if "rounds" not in node.attrs:
        return {}
    expression = ("cast", "float32", ("cast", node.attrs["rounds"], ACC))
    return {"epilogue": expression, "own_inputs": own, "accumulator": node.attrs["unrounded"][place]}
