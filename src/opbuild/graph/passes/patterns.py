"""Patterns: operators that exporters write out as a dozen nodes, found again.

Only the last node of a pattern is replaced; what nothing reads any more goes away as dead code. Where a model that
writes an operator out rounds every step to 16 bits, the steps stay: conversions stand between those in float32.
"""

from __future__ import annotations

import math

import numpy as np

from opbuild.dtypes import NARROW_FLOATS
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.rewriter import NewGraph
from opbuild.graph.types import Array, Graph, Node
from opbuild.platform.records import dataclass

_TOLERANCE = 1e-3
"""Constants of a pattern are written with as few as four digits."""

_GELU_BY_ERF = ("Add", "Div", "Erf", "Gelu", "Mul")
_GELU_BY_TANH = ("Add", "Gelu", "Mul", "Pow", "Tanh")
_LAYER_NORMALIZATION = ("Add", "Div", "LayerNormalization", "Mul", "Pow", "ReduceMean", "Sqrt", "Sub")
"""Types of operators that a pattern is made of, and its own."""


class _View:
    """A graph, asked backwards: which node assigns a value, which number it is."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers = graph.producers()

    def node(self, name: str, *op_types: str) -> Node | None:
        """Return the node of one of these types that assigns a value, if that is what it is."""
        found = self.producers.get(name)
        return found if found is not None and not found.domain and found.op_type in op_types else None

    def number(self, name: str) -> float | None:
        """Return the one number that a constant holds, or None."""
        value = self.graph.constants.get(name)
        if value is None or value.size != 1 or not np.issubdtype(value.dtype, np.number):
            return None
        return float(value.reshape(-1)[0])

    def is_number(self, name: str, wanted: float) -> bool:
        """Return whether a value is (nearly) this number."""
        found = self.number(name)
        return found is not None and math.isclose(found, wanted, rel_tol=_TOLERANCE)

    def product(self, name: str) -> tuple[float, list[str]]:
        """Return a value as a number times other values: products and quotients by a number, opened up."""
        number = self.number(name)
        if number is not None:
            return number, []
        node = self.node(name, "Mul", "Div")
        if node is None:
            return 1.0, [name]
        factor, names = self.product(node.inputs[0])
        if node.op_type == "Mul":
            other, more = self.product(node.inputs[1])
            return factor * other, names + more
        divisor = self.number(node.inputs[1])
        return (factor / divisor, names) if divisor else (1.0, [name])

    def plus(self, name: str, wanted: float) -> str | None:
        """Return ``a`` where a value is ``a + wanted``."""
        node = self.node(name, "Add")
        for position in (0, 1):
            if node is not None and self.is_number(node.inputs[position], wanted):
                return node.inputs[1 - position]
        return None


def fuse_gelu(graph: Graph) -> Graph:
    """Replace ``x / 2 * (1 + erf(x / sqrt(2)))``, and its approximation by tanh, by Gelu."""
    view = _View(graph)
    nodes = []
    for node in graph.nodes:
        found = _gelu(view, node) if node.op_type in ("Mul", "Div") and not node.domain else None
        if found is None:
            nodes.append(node)
        else:
            source, approximate = found
            made_of = _GELU_BY_TANH if approximate == "tanh" else _GELU_BY_ERF
            attrs = {"approximate": approximate}
            nodes.append(Node("Gelu", (source,), node.outputs, attrs, node.name, made_of=made_of))
    return eliminate_dead(graph.with_(nodes=tuple(nodes)))


def _gelu(view: _View, node: Node) -> tuple[str, str] | None:
    if view.graph.types[node.outputs[0]].dtype in NARROW_FLOATS:
        return None
    factor, names = view.product(node.outputs[0])
    if len(names) != 2 or not math.isclose(factor, 0.5, rel_tol=_TOLERANCE):
        return None
    for x, other in (names, names[::-1]):
        inner = view.plus(other, 1.0)
        if inner is None or view.graph.types[x] != view.graph.types[node.outputs[0]]:
            continue
        erf = view.node(inner, "Erf")
        if erf is not None:
            scale, source = view.product(erf.inputs[0])
            if source == [x] and math.isclose(scale, math.sqrt(0.5), rel_tol=_TOLERANCE):
                return x, "none"
        tanh = view.node(inner, "Tanh")
        if tanh is not None and _is_tanh_argument(view, tanh.inputs[0], x):
            return x, "tanh"
    return None


def _is_tanh_argument(view: _View, name: str, x: str) -> bool:
    """Return whether a value is ``sqrt(2 / pi) * (x + 0.044715 * x ** 3)``."""
    scale, names = view.product(name)
    total = view.node(names[0], "Add") if len(names) == 1 else None
    if total is None or not math.isclose(scale, math.sqrt(2 / math.pi), rel_tol=_TOLERANCE):
        return False
    for plain, cubic in (total.inputs, total.inputs[::-1]):
        if plain != x:
            continue
        factor, factors = view.product(cubic)
        if not math.isclose(factor, 0.044715, rel_tol=_TOLERANCE):
            continue
        if factors == [x, x, x]:
            return True
        power = view.node(factors[0], "Pow") if len(factors) == 1 else None
        if power is not None and power.inputs[0] == x and view.is_number(power.inputs[1], 3.0):
            return True
    return False


@dataclass
class _Norm:
    """A LayerNormalization found, to which a scale and a bias may still be added."""

    node: Node
    x: str
    axis: int
    epsilon: float
    scale: Array | None = None
    bias: Array | None = None


def fuse_layer_normalization(graph: Graph) -> Graph:
    """Replace ``(x - mean) / sqrt(variance + epsilon) * scale + bias`` by LayerNormalization."""
    view = _View(graph)
    readers = graph.consumers()
    norms: dict[str, _Norm] = {}
    for node in graph.nodes:
        found = _normalised(view, node) or _extended(graph, norms, node, readers)
        if found is not None:
            norms[node.outputs[0]] = found
    to = NewGraph(graph)
    for node in graph.nodes:
        norm = norms.get(node.outputs[0])
        to.nodes.append(node if norm is None else _layer_normalization(norm, to))
    return eliminate_dead(to.graph(graph))


def _normalised(view: _View, node: Node) -> _Norm | None:
    """Match ``(x - mean) / sqrt(variance + epsilon)``."""
    if node.op_type != "Div" or node.domain:
        return None
    centred, root = view.node(node.inputs[0], "Sub"), view.node(node.inputs[1], "Sqrt")
    total = view.node(root.inputs[0], "Add") if root is not None else None
    if centred is None or total is None:
        return None
    x, axis = centred.inputs[0], _mean_axis(view, centred.inputs[1])
    for position in (0, 1):
        epsilon, variance = view.number(total.inputs[position]), total.inputs[1 - position]
        mean = view.node(variance, "ReduceMean")
        if epsilon is None or mean is None or axis is None or _mean_axis(view, variance) != axis:
            continue
        source = view.node(centred.inputs[1], "ReduceMean")
        if source is not None and source.inputs[0] == x and _is_square(view, mean.inputs[0], node.inputs[0]):
            return _Norm(node, x, axis, epsilon)
    return None


def _is_square(view: _View, name: str, of: str) -> bool:
    power, product = view.node(name, "Pow"), view.node(name, "Mul")
    if power is not None:
        return _same(view, power.inputs[0], of) and view.is_number(power.inputs[1], 2.0)
    return product is not None and all(_same(view, each, of) for each in product.inputs)


def _same(view: _View, name: str, other: str) -> bool:
    """Return whether two values are equal; exporters write one subtraction twice."""
    first, second = view.node(name, "Sub"), view.node(other, "Sub")
    return name == other or (first is not None and second is not None and first.inputs == second.inputs)


def _mean_axis(view: _View, name: str) -> int | None:
    """Return the first axis of a mean over all trailing dimensions that keeps them, or None."""
    node = view.node(name, "ReduceMean")
    if node is None or not node.attrs.get("keepdims", 1) or len(node.inputs) < 2:
        return None
    value, rank = view.graph.constants.get(node.inputs[1]), len(view.graph.types[node.inputs[0]].shape)
    if value is None or not value.size:
        return None
    axes = sorted(int(axis) % rank for axis in value.reshape(-1))
    return axes[0] if axes == list(range(axes[0], rank)) else None


def _extended(graph: Graph, norms: dict[str, _Norm], node: Node, readers: dict[str, list[Node]]) -> _Norm | None:
    """Match a product or sum of a normalization found before and a constant."""
    if node.domain or node.op_type not in ("Mul", "Add"):
        return None
    for name, other in (node.inputs, node.inputs[::-1]):
        norm, value = norms.get(name), graph.constants.get(other)
        if norm is None or value is None or len(readers[name]) != 1 or name in graph.outputs:
            continue
        trailing = graph.types[norm.x].shape[norm.axis :]
        fits = value.size and all(extent == 1 for extent in value.shape[: max(value.ndim - len(trailing), 0)])
        if not fits or graph.types[node.outputs[0]].shape != graph.types[norm.x].shape:
            continue
        wide = np.broadcast_to(value.reshape(value.shape[max(value.ndim - len(trailing), 0) :]), trailing)
        if node.op_type == "Mul" and norm.scale is None and norm.bias is None:
            return _Norm(node, norm.x, norm.axis, norm.epsilon, wide)
        if node.op_type == "Add" and norm.bias is None:
            return _Norm(node, norm.x, norm.axis, norm.epsilon, norm.scale, wide)
    return None


def _layer_normalization(norm: _Norm, to: NewGraph) -> Node:
    kind = to.types[norm.x]
    trailing = kind.shape[norm.axis :]
    scale = np.broadcast_to(np.ones((), kind.dtype), trailing) if norm.scale is None else norm.scale
    names = [norm.x]
    for part, value in (("scale", scale), ("bias", norm.bias)):
        if value is not None:
            names.append(to.constant(value, f"{norm.node.outputs[0]}/{part}"))
    attrs = {"axis": norm.axis, "epsilon": norm.epsilon}
    name, outputs = norm.node.name, norm.node.outputs
    return Node("LayerNormalization", tuple(names), outputs, attrs, name, made_of=_LAYER_NORMALIZATION)
