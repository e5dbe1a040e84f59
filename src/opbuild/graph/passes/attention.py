"""Attention: two products with a softmax between them become the one node of ``graph.attention``.

The pass runs after ``fuse``, which makes one expression of a scale, masks, and whatever else becomes of the scores.
"""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.graph.constants import Constants
from opbuild.graph.elementwise import rounding_of
from opbuild.graph.passes.hidden_keys import HiddenKeys
from opbuild.graph.passes.matching import Pattern
from opbuild.graph.types import Graph, Node
from opbuild.operations.expression import ACC, Expression, arg, canonical, from_json, substitute, walk

EXACT_TYPE = "float32"
OPERAND_TYPES = frozenset((EXACT_TYPE, "bool", "int32", "int64"))
"""Types of what the expression of the scores may read."""


def fuse_attention(graph: Graph) -> Graph:
    """Replace ``softmax(expression(queries @ keys)) @ values`` by ``opbuild.Attention`` where nothing else reads it."""
    pattern = _Attention(graph)
    nodes = [pattern.attention(node) or node for node in graph.nodes]
    # The types of what was taken in stay: lowering may want the operators one by one.
    constants = Constants(graph.constants)
    constants.update(pattern.hidden.constants)
    return graph.with_(
        nodes=tuple(node for node in nodes if id(node) not in pattern.taken),
        types={**graph.types, **{name: pattern.hidden.type_of(name) for name in pattern.hidden.constants}},
        constants=constants,
    )


class _Attention(Pattern):
    """A graph, asked backwards from the last product of an attention.

    Attributes:
        taken: Identities of the nodes that attentions took in.
        hidden: What is asked which keys are hidden.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.taken: set[int] = set()
        self.hidden = HiddenKeys(graph)

    def attention(self, node: Node) -> Node | None:
        """Return the attention whose last product a node is, or None."""
        softmax = self.step(node.inputs[0], "Softmax") if _is_product(node) else None
        if softmax is None or not self._along_rows(softmax):
            return None
        rounds = _rounding(node)
        if rounds is None or _rounding(softmax) != rounds:
            return None
        found = self._scores(softmax.inputs[0])
        if found is None:
            return None
        product, expression, operands = found
        (query, key), value, accumulator = product.inputs[:2], node.inputs[1], product.outputs[0]
        if "epilogue" in product.attrs:
            accumulator = str(product.attrs["accumulator"])
        if not all(self._is_matrix(name) for name in (query, key, value)):
            return None
        compared, places = self.hidden.compared(expression, operands)
        apart = product.outputs[0] != softmax.inputs[0] or compared != expression
        attrs = {
            "epilogue": compared,
            "hiding": self.hidden.find(compared, places),
            "own_inputs": 3,
            "accumulator": accumulator,
            "scores": softmax.inputs[0],
            "weights": node.inputs[0],
            "apart": apart,
        }
        if rounds:
            attrs |= {"rounds": rounds, "unrounded": (softmax.attrs["accumulator"], node.attrs["accumulator"])}
        if "zeros" in softmax.attrs:
            attrs["zeros"] = softmax.attrs["zeros"]
        result, inputs = node, (query, key, value, *places)
        for each in dict.fromkeys((product, self.producers[softmax.inputs[0]], softmax)):
            result = result.taking(each)
            self.taken.add(id(each))
        return result.with_(op_type="Attention", domain="opbuild", inputs=inputs, attrs=attrs, proto=None)

    def _scores(self, name: str) -> tuple[Node, Expression, Sequence[str]] | None:
        """Return the product that scores are made of, their expression over it, and what that reads besides."""
        product = self.step(name, "MatMul")
        if product is not None:
            stored = product.attrs.get("epilogue")
            expression = ACC if stored is None else from_json(stored)
            return (product, expression, product.inputs[2:]) if self._fits(expression, product.inputs[2:]) else None
        chain = self.step(name, "Elementwise", domain="opbuild")
        for place, source in enumerate(chain.inputs if chain is not None else ()):
            product = self.step(source, "MatMul")
            if chain is None or product is None or not _is_plain_product(product):
                continue
            if self.types[source] != self.types[name]:
                continue
            stored = from_json(chain.attrs["expression"])
            expression, order = canonical(_over_product(stored, place))
            operands = [chain.inputs[index] for index in order]
            if self._fits(expression, operands):
                return product, expression, operands
        return None

    def _fits(self, expression: Expression, operands: Sequence[str]) -> bool:
        is_known = not any(part[0] == "user" for part in walk(expression))
        return is_known and all(self.types[name].dtype in OPERAND_TYPES for name in operands)

    def _along_rows(self, softmax: Node) -> bool:
        rank = len(self.types[softmax.inputs[0]].shape)
        return rank >= 2 and int(softmax.attrs.get("axis", -1)) in (-1, rank - 1)

    def _is_matrix(self, name: str) -> bool:
        """Return whether a value is made when the network runs and is at least a matrix."""
        type_ = self.types[name]
        return name not in self.constants and type_.dtype == EXACT_TYPE and len(type_.shape) >= 2


def _is_product(node: Node) -> bool:
    return node.op_type == "MatMul" and not node.domain


def _is_plain_product(node: Node) -> bool:
    return _is_product(node) and "epilogue" not in node.attrs


def _rounding(node: Node) -> str | None:
    """Return the type of 16 bits to whose numbers a node rounds; empty if it does not, None if it does more."""
    stored = node.attrs.get("epilogue")
    return "" if stored is None else rounding_of(from_json(stored)) or None


def _over_product(expression: Expression, place: int) -> Expression:
    return substitute(expression, lambda e: ACC if e == arg(place) else None)
