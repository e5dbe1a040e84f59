"""Attention: two products with a softmax between them become the one node of ``graph.elementwise.split_attention``.

The pass runs after ``fuse``, which makes one expression of a scale, masks, and whatever else becomes of the scores. In
that is found how many keys, the first ones, each query sees: a causal mask is a comparison of the places of queries and
keys, or a constant made of one. Scores that it hides are -inf, or so far below all others that their power is 0:
nothing has to be computed of them.

Values of a cache that has room for more are chosen by such comparisons, zeros behind those that are there, and before
the window of the first query. The choice becomes a part of the attention, which then reads what is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from opbuild.graph.constants import ConstantValues
from opbuild.graph.elementwise import Hiding, rounding_of
from opbuild.graph.extents import is_open, same_shape
from opbuild.graph.passes.patterns import Pattern
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.operations.expression import ACC, Expression, arg, canonical, const, from_json, substitute, walk
from opbuild.platform.records import NamedTuple

FAR = -1e9
"""What hides a key: no sum of products that means anything is so far from others."""

EXACT_TYPE = "float32"
OPERAND_TYPES = frozenset((EXACT_TYPE, "bool", "int32", "int64"))
"""Types of what the expression of the scores may read."""

_MASKS = ("bool", "float32")
_MOVES = ("Reshape", "Slice", "Squeeze", "Unsqueeze")

_COUNTS = {"less": (1, 2, 0), "less_equal": (1, 2, 1), "greater": (2, 1, 0), "greater_equal": (2, 1, 1)}
"""Of a comparison that is true for keys which are seen: where the key's place stands, and where the query's, and what
that is less than the number of keys that are seen."""

_FIRSTS = {"greater": (1, 2, 1), "greater_equal": (1, 2, 0), "less": (2, 1, 1), "less_equal": (2, 1, 0)}
"""The same of one that is true for keys from a number on: what is added to the query's side is that number."""

_OPPOSITES = {"less": "greater_equal", "less_equal": "greater", "greater": "less_equal", "greater_equal": "less"}


class Cleared(NamedTuple):
    """A choice of the rows of a matrix that are there, zeros in place of others.

    Attributes:
        node: The choice.
        value: The matrix.
        expression: What it computes, over ``names``.
        names: Values.
        numbers: Behind and before which row there are zeros, ``bound`` and ``start``, over the same.
    """

    node: Node
    value: str
    expression: Expression
    names: Sequence[str]
    numbers: Mapping[str, Expression]

    @property
    def operands(self) -> list[str]:
        """The values that the numbers are made of."""
        parts = chain.from_iterable(map(walk, self.numbers.values()))
        return [self.names[part[1]] for part in parts if part[0] == "arg"]

    def attributes(self, places: Sequence[str]) -> dict[str, Any]:
        """Return the attributes of an attention to it, over other operands, which those of the numbers are among."""

        def moved(e: Expression) -> Expression | None:
            return arg(places.index(self.names[e[1]])) if e[0] == "arg" else None

        numbers = {name: substitute(number, moved) for name, number in self.numbers.items()}
        return {**numbers, "cleared": (tuple(self.names), self.node.outputs, self.expression)}


class HiddenKeys:
    """A graph, asked for masks that hide keys.

    Attributes:
        constants: Constants to be added to the graph: places and numbers of keys, in place of masks.
        opened: Masks in whose place comparisons are.
    """

    def __init__(self, graph: Graph) -> None:
        self.types, self._known, self._producers = graph.types, graph.constants, graph.producers()
        self.constants: dict[str, Array] = {}
        self.opened: set[str] = set()

    def compared(self, expression: Expression, operands: Sequence[str]) -> tuple[Expression, tuple[str, ...]]:
        """Return an expression of scores that compares places instead of reading a mask of that, and its operands."""
        expression, names = self._opened(expression, operands)

        def replace(e: Expression) -> Expression | None:
            return self._compared_places(e[1], names) if e[0] == "arg" and self._is_square(names[e[1]]) else None

        result, order = canonical(substitute(expression, replace))
        return result, tuple(names[index] for index in order)

    def _compared_places(self, index: int, names: list[str]) -> Expression | None:
        """Return the comparisons that a constant mask is made of, if it is; names of what they read are added."""
        name = names[index]
        mask: Array = self._known[name]
        mask = mask.reshape(-1, mask.shape[-1])
        pairs = ((True, False), (False, True)) if mask.dtype == bool else ((0.0, float(mask[0, -1])),)
        for seen, hidden in pairs:
            ends = _ends(mask, seen, hidden)
            if ends is None or (not seen and hidden is True and ends[1].any()):
                continue
            numbers = {f"{name}/keys": np.arange(mask.shape[-1], dtype=np.int64), f"{name}/seen": ends[0]}
            numbers |= {f"{name}/since": ends[1]} if ends[1].any() else {}
            self.constants |= numbers
            names.extend(each for each in numbers if each not in names)
            key, count, *first = (arg(names.index(each)) for each in numbers)
            if hidden is True:
                return ("greater_equal", key, count)
            shown: Expression = ("less", key, count)
            shown = ("and", shown, ("greater_equal", key, first[0])) if first else shown
            return shown if mask.dtype == bool else ("where", shown, const(0.0), const(hidden))
        return None

    def _opened(self, expression: Expression, operands: Sequence[str], axes: int = 1) -> tuple[Expression, list[str]]:
        """Return an expression with the comparisons of places that it reads as masks, which are smaller, written in."""
        names = list(operands)

        def replace(e: Expression) -> Expression | None:
            node = self._producers.get(names[e[1]]) if e[0] == "arg" else None
            if node is None or (node.domain, node.op_type) != ("opbuild", "Elementwise"):
                return None
            inner = from_json(node.attrs["expression"])
            conditions = _alternatives(inner)
            compared = [each for each in conditions if self._count(each, True, node.inputs, axes) is not None]
            is_read = all(self.type_of(name).dtype in OPERAND_TYPES for name in node.inputs)
            if not compared or not is_read or not all(each[0] in ("arg", *_COUNTS) for each in conditions):
                return None
            self.opened.update(node.outputs)
            names.extend(name for name in node.inputs if name not in names)
            return substitute(inner, lambda e: arg(names.index(node.inputs[e[1]])) if e[0] == "arg" else None)

        return substitute(expression, replace), names

    def find(self, expression: Expression, operands: Sequence[str]) -> Hiding | None:
        """Return the hiding by which hidden keys' weights are exactly 0, whatever is done to the scores; or None."""
        choices = sum(part[0] == "where" for part in walk(expression))
        for e, other in _hiding(expression):
            number = self._number(other, operands)
            if number is None or not number <= FAR or (number != -np.inf and choices > 1):
                continue
            is_seen, is_exact, replaces = e[2] is not other, number == -np.inf, e is expression
            conditions = _alternatives(e[1]) if is_seen else (e[1],)
            counts = [(each, self._count(each, is_seen, operands)) for each in conditions]
            firsts = [self._first(each, operands) for each in conditions] if is_seen else []
            found, first = next((each for each in counts if each[1]), None), next(filter(None, firsts), None)
            # Where all scores may be the same number, each key has a weight unless nothing else hides it.
            is_known = is_exact or len(conditions) == 1 + (first is not None)
            is_sure = (is_exact and replaces) or self._is_finite(operands, alone=not is_exact)
            if found is not None and found[1] is not None and is_known and is_sure:
                return Hiding(found[0], is_seen, found[1], first, replaces)
        return None

    def cleared(self, node: Node) -> Cleared | None:
        """Return a choice of the rows of a matrix that are there, zeros in place of others, if a node is one."""
        opened, inputs = self._opened(from_json(node.attrs["expression"]), node.inputs, axes=2)
        e, order = canonical(opened)
        names = [inputs[index] for index in order]
        if e[0] != "where" or e[2][0] != "arg" or self._number(e[3], names) != 0.0:
            return None
        conditions, value = _alternatives(e[1]), names[e[2][1]]
        counts = [self._count(each, True, names, axes=2) for each in conditions]
        firsts = [self._first(each, names, axes=2) for each in conditions]
        numbers = {"bound": next(filter(None, counts), None), "start": next(filter(None, firsts), None)}
        known = {name: number for name, number in numbers.items() if number is not None}
        if numbers["bound"] is None or len(conditions) != len(known):
            return None
        is_same = same_shape(self.type_of(value).shape, self.type_of(node.outputs[0]).shape)
        return Cleared(node, value, e, names, known) if is_same else None

    def _count(self, e: Expression, is_seen: bool, operands: Sequence[str], axes: int = 1) -> Expression | None:
        """Return how many keys, the first ones, a comparison shows, which is true for those if ``is_seen``.

        Numbers are the same along the last ``axes``: with 2 keys are along the one before the last.
        """
        return self._compared(e, _COUNTS, is_seen, operands, axes)

    def _first(self, e: Expression, operands: Sequence[str], axes: int = 1) -> Expression | None:
        """Return how many keys, the first ones, a comparison hides that is true for all others."""
        return self._compared(e, _FIRSTS, True, operands, axes)

    def _compared(
        self,
        e: Expression,
        table: Mapping[str, tuple[int, int, int]],
        is_seen: bool,
        operands: Sequence[str],
        axes: int,
    ) -> Expression | None:
        if e[0] not in table:
            return None
        key, query, more = table[e[0] if is_seen else _OPPOSITES[e[0]]]
        if not self._is_place(e[key], operands, axes) or not self._is_of_query(e[query], operands, axes):
            return None
        dtype = self.type_of(operands[e[key][1]]).dtype
        return ("add", e[query], const(more, dtype)) if more else e[query]

    def type_of(self, name: str) -> TensorType:
        """Return the type of a value of the graph, or of a constant to be added."""
        if name in self.constants:
            value = self.constants[name]
            return TensorType(str(value.dtype), value.shape)
        return self.types[name]

    def _is_square(self, name: str) -> bool:
        """Return whether a value is one constant matrix for all heads."""
        shape = self.types[name].shape
        if name not in self._known or is_open(shape) or len(shape) < 2 or self.types[name].dtype not in _MASKS:
            return False
        return min(shape[-2:]) > 1 and all(extent == 1 for extent in shape[:-2])

    def _number(self, e: Expression, operands: Sequence[str]) -> float | None:
        if e[0] == "const":
            return float(e[2])
        known = self._known.get(operands[e[1]]) if e[0] == "arg" else None
        return float(np.asarray(known).reshape(-1)[0]) if known is not None and np.size(known) == 1 else None

    def _is_place(self, e: Expression, operands: Sequence[str], axes: int = 1) -> bool:
        """Return whether an expression is the place of each key, 0, 1, 2, ..., along the first of the last ``axes``."""
        if e[0] != "arg" or len(self.type_of(operands[e[1]]).shape) < axes:
            return False
        shape = list(self.type_of(operands[e[1]]).shape)
        del shape[-axes]
        if any(is_open((extent,)) or extent != 1 for extent in shape):
            return False
        return self._is_counted(operands[e[1]])

    def _is_counted(self, name: str) -> bool:
        """Return whether the elements of a value, along one axis, are 0, 1, 2, ..."""
        shape = self.type_of(name).shape
        while (node := self._producers.get(name)) is not None and node.op_type in _MOVES:
            if node.op_type == "Slice" and not self._is_beginning(node):
                return False
            name = node.inputs[0]
        known = self.constants.get(name, self._known.get(name))
        if known is None or known.dtype == object or not shape or known.size != max(known.shape):
            return False
        return np.array_equal(known.reshape(-1), np.arange(known.size))

    def _is_beginning(self, node: Node) -> bool:
        """Return whether a Slice takes elements from the first one on, one after the other."""
        known = [self._known.get(name) for name in (node.inputs[1], (*node.inputs, "", "")[4])]
        numbers = [None if value is None else value.tolist() for value in known]
        return not is_open(chain(*filter(None, numbers))) and numbers in ([[0], [1]], [[0], None])

    def _is_of_query(self, e: Expression, operands: Sequence[str], axes: int = 1) -> bool:
        """Return whether an expression is an integer that is the same along the last axes, of keys and of queries."""
        names = [operands[part[1]] for part in walk(e) if part[0] == "arg"]
        types = [self.type_of(name) for name in names]
        return "acc" not in {part[0] for part in walk(e)} and all(
            kind.dtype in ("int32", "int64") and not is_open(kind.shape[-axes:]) and {*kind.shape[-axes:]} <= {1}
            for kind in types
        )

    def _is_finite(self, operands: Sequence[str], alone: bool) -> bool:
        """Return whether all floats that the scores read are finite constants; ``alone``: of one element."""
        dtypes = {name: self.type_of(name).dtype for name in operands}
        floats = [self._known.get(name) for name in operands if dtypes[name] not in ("bool", "int32", "int64")]
        known = [np.asarray(value) for value in floats if value is not None]
        return len(known) == len(floats) and all(
            (value.size == 1 and float(value.reshape(-1)[0]) <= FAR)
            or ((value.size == 1 or not alone) and bool(np.isfinite(value).all()))
            for value in known
        )


def _hiding(e: Expression) -> list[tuple[Expression, Expression]]:
    """Return the choices, with their numbers for hidden keys, that decide a sum alone once that is far below 0."""
    if e[0] == "add":
        return [*_hiding(e[1]), *_hiding(e[2])]
    return [(e, e[3]), (e, e[2])] if e[0] == "where" else []


def _alternatives(condition: Expression) -> Sequence[Expression]:
    """Return conditions each of which a key that is seen meets."""
    if condition[0] == "and":
        return [part for each in condition[1:] for part in _alternatives(each)]
    return [condition]


def _ends(mask: Array, seen: Any, hidden: Any) -> tuple[Array, Array] | None:
    """Return the number of keys, the first ones, that a mask leaves to each query, and how many of those it hides.

    None: it is no such mask, or hides nothing.
    """
    is_seen, keys = mask == seen, np.arange(mask.shape[1])
    first = is_seen.argmax(-1, keepdims=True).astype(np.int64)
    count = np.asarray(first + is_seen.sum(-1, keepdims=True, dtype=np.int64))
    shown = (keys < count) & (keys >= first)
    if is_seen.all() or not np.array_equal(is_seen, shown) or not (mask[~is_seen] == hidden).all():
        return None
    return count, first


def fuse_attention(graph: Graph) -> Graph:
    """Replace ``softmax(expression(queries @ keys)) @ values`` by ``opbuild.Attention`` where nothing else reads it."""
    pattern = _AttentionPattern(graph)
    found = [pattern.attention(node) or node for node in graph.nodes]
    nodes, added = [node for node in found if id(node) not in pattern.taken], pattern.hidden.constants
    read = {name for node in nodes for name in node.inputs}.union(graph.outputs)
    unread = pattern.hidden.opened - read
    nodes = [node for node in nodes if unread.isdisjoint(node.outputs)]
    constants = ConstantValues(graph.constants)
    constants.update(added)
    # The types of what was taken in stay: lowering may want the operators one by one.
    types = {**graph.types, **{name: pattern.hidden.type_of(name) for name in added}}
    return graph.with_(nodes=tuple(nodes), types=types, constants=constants)


class _AttentionPattern(Pattern):
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
        is_product = node.op_type == "MatMul" and not node.domain
        softmax = self.step(node.inputs[0], "Softmax") if is_product else None
        rank = 0 if softmax is None else len(self.types[softmax.inputs[0]].shape)
        if softmax is None or rank < 2 or int(softmax.attrs.get("axis", -1)) not in (-1, rank - 1):
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
        hiding = self.hidden.find(compared, places)
        # What is not there has no weight only if it is hidden, too, whatever its products are.
        choice = self.step(value, "Elementwise", domain="opbuild") if hiding is not None and hiding.replaces else None
        cleared = self.hidden.cleared(choice) if choice is not None else None
        if cleared is not None:
            value, places = cleared.value, tuple(dict.fromkeys((*places, *cleared.operands)))
        apart = product.outputs[0] != softmax.inputs[0] or compared != expression
        attrs = {
            "epilogue": compared,
            "hiding": hiding,
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
        if cleared is not None:
            attrs |= cleared.attributes(places)
        result, inputs = node, (query, key, value, *places)
        taken = (product, self.producers[softmax.inputs[0]], softmax, *([cleared.node] if cleared is not None else ()))
        for each in dict.fromkeys(taken):
            result = result.taking(each)
            self.taken.add(id(each))
        return result.with_(op_type="Attention", domain="opbuild", inputs=inputs, attrs=attrs, proto=None)

    def _scores(self, name: str) -> tuple[Node, Expression, Sequence[str]] | None:
        """Return the product that scores are made of, their expression over it, and its other operands."""
        product = self.step(name, "MatMul")
        if product is not None:
            stored = product.attrs.get("epilogue")
            expression = ACC if stored is None else from_json(stored)
            return (product, expression, product.inputs[2:]) if self._fits(expression, product.inputs[2:]) else None
        chain = self.step(name, "Elementwise", domain="opbuild")
        for place, source in enumerate(chain.inputs if chain is not None else ()):
            product = self.step(source, "MatMul")
            if chain is None or product is None or "epilogue" in product.attrs:
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

    def _is_matrix(self, name: str) -> bool:
        """Return whether a value is made when the network runs and is at least a matrix."""
        type_ = self.types[name]
        return name not in self.constants and type_.dtype == EXACT_TYPE and len(type_.shape) >= 2


def _rounding(node: Node) -> str | None:
    """Return the type of 16 bits to whose numbers a node rounds; empty if it does not, None if it does more."""
    stored = node.attrs.get("epilogue")
    return "" if stored is None else rounding_of(from_json(stored)) or None


def _over_product(expression: Expression, place: int) -> Expression:
    return substitute(expression, lambda e: ACC if e == arg(place) else None)
