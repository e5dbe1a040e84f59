"""Patterns: operators that exporters write out as several nodes, found again.

Only the last node of a pattern is replaced; what nothing reads any more goes away as dead code. Where a model that
writes an operator out rounds every step to 16 bits, the steps stay: conversions stand between those in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.dtypes import NARROW_FLOATS
from opbuild.graph.extents import is_open
from opbuild.graph.factors import is_moderate
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.rewriter import KeptError, NewGraph, PassBuilder, rewritten
from opbuild.graph.types import Array, Graph, Node
from opbuild.platform.locks import lazy_property
from opbuild.platform.records import dataclass, replace

TOLERANCE = 1e-3
"""Constants of a pattern are written with as few as four digits."""


class Pattern:
    """A graph, asked backwards: which node assigns a value, which number it is."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.types, self.constants = graph, graph.types, graph.constants
        self.outputs, self.producers = frozenset(graph.outputs), graph.producers()

    @lazy_property
    def readers(self) -> dict[str, list[Node]]:
        """The nodes that read each value."""
        return self.graph.consumers()

    def node(self, name: str, *op_types: str, domain: str = "") -> Node | None:
        """Return the node of one of these types that assigns a value, if it is one."""
        found = self.producers.get(name)
        return found if found is not None and found.domain == domain and found.op_type in op_types else None

    def step(self, name: str, *op_types: str, domain: str = "") -> Node | None:
        """Return such a node if one node alone reads the value."""
        return self.node(name, *op_types, domain=domain) if self.is_step(name) else None

    def is_step(self, name: str) -> bool:
        """Return whether one node alone reads a value."""
        return name not in self.outputs and len(self.readers.get(name, ())) == 1

    def number(self, name: str) -> float | None:
        """Return the one number that a constant holds, or None."""
        value = self.constants.get(name)
        if value is None or value.size != 1 or not np.issubdtype(value.dtype, np.number):
            return None
        return float(value.reshape(-1)[0])

    def is_number(self, name: str, wanted: float) -> bool:
        """Return whether a value is (nearly) this number."""
        found = self.number(name)
        return found is not None and math.isclose(found, wanted, rel_tol=TOLERANCE)

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


def replaced(graph: Graph, find: Callable[[Node], Node | None], *op_types: str) -> Graph:
    """Return a graph in which others took the places of nodes of some types for which ``find`` returns one."""
    nodes = ((not node.domain and node.op_type in op_types and find(node)) or node for node in graph.nodes)
    return eliminate_dead(graph.with_(nodes=tuple(nodes)))


def written(graph: Graph, write: Callable[[PassBuilder], None], *op_types: str) -> Graph:
    """Return a graph in which operators are written in the place of nodes of some types."""
    found = rewritten(
        NewGraph(graph), graph, lambda node: write if not node.domain and node.op_type in op_types else None
    )
    return eliminate_dead(found)


_GELU_BY_ERF = ("Add", "Div", "Erf", "Gelu", "Mul")
_GELU_BY_TANH = ("Add", "Gelu", "Mul", "Pow", "Tanh")
_LAYER_NORMALIZATION = ("Add", "Div", "LayerNormalization", "Mul", "Pow", "ReduceMean", "Sqrt", "Sub")
"""Types of operators that a pattern is made of, and its own."""

POSITIONS = 3
"""Axes from which on there are positions behind batches and channels."""


def _fused_node(node: Node, op_type: str, inputs: Sequence[str], made_of: tuple[str, ...], **attrs: Any) -> Node:
    """Return an operator in the place of the last node of a pattern."""
    return Node(op_type, tuple(map(str, inputs)), node.outputs, attrs, node.name, made_of=made_of)


# GELU


def fuse_gelu(graph: Graph) -> Graph:
    """Replace ``x / 2 * (1 + erf(x / sqrt(2)))``, and its approximation by tanh, by Gelu."""
    view = Pattern(graph)

    def find(node: Node) -> Node | None:
        source, approximate = _gelu(view, node) or ("", "")
        made_of = _GELU_BY_TANH if approximate == "tanh" else _GELU_BY_ERF
        return _fused_node(node, "Gelu", (source,), made_of, approximate=approximate) if source else None

    return replaced(graph, find, "Mul", "Div")


def _gelu(view: Pattern, node: Node) -> tuple[str, str] | None:
    if view.types[node.outputs[0]].dtype in NARROW_FLOATS:
        return None
    factor, names = view.product(node.outputs[0])
    if len(names) != 2 or not math.isclose(factor, 0.5, rel_tol=TOLERANCE):
        return None
    for x, other in (names, names[::-1]):
        inner = view.plus(other, 1.0)
        if inner is None or view.types[x] != view.types[node.outputs[0]]:
            continue
        erf = view.node(inner, "Erf")
        if erf is not None:
            scale, source = view.product(erf.inputs[0])
            if source == [x] and math.isclose(scale, math.sqrt(0.5), rel_tol=TOLERANCE):
                return x, "none"
        tanh = view.node(inner, "Tanh")
        if tanh is not None and _is_tanh_argument(view, tanh.inputs[0], x):
            return x, "tanh"
    return None


def _is_tanh_argument(view: Pattern, name: str, x: str) -> bool:
    """Return whether a value is ``sqrt(2 / pi) * (x + 0.044715 * x ** 3)``."""
    scale, names = view.product(name)
    total = view.node(names[0], "Add") if len(names) == 1 else None
    if total is None or not math.isclose(scale, math.sqrt(2 / math.pi), rel_tol=TOLERANCE):
        return False
    for plain, cubic in (total.inputs, total.inputs[::-1]):
        if plain != x:
            continue
        factor, factors = view.product(cubic)
        if not math.isclose(factor, 0.044715, rel_tol=TOLERANCE):
            continue
        if factors == [x, x, x]:
            return True
        power = view.node(factors[0], "Pow") if len(factors) == 1 else None
        if power is not None and power.inputs[0] == x and view.is_number(power.inputs[1], 3.0):
            return True
    return False


# Normalizations


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
    view = Pattern(graph)
    norms: dict[str, _Norm] = {}
    for node in graph.nodes:
        found = _normalised(view, node) or _extended(view, norms, node)
        if found is not None:
            norms[node.outputs[0]] = found
    to = NewGraph(graph)
    for node in graph.nodes:
        norm = norms.get(node.outputs[0])
        to.nodes.append(node if norm is None else _layer_normalization(norm, to))
    return eliminate_dead(to.graph(graph))


def _normalised(view: Pattern, node: Node) -> _Norm | None:
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


def _is_square(view: Pattern, name: str, of: str) -> bool:
    power, product = view.node(name, "Pow"), view.node(name, "Mul")
    if power is not None:
        return _is_same(view, power.inputs[0], of) and view.is_number(power.inputs[1], 2.0)
    return product is not None and all(_is_same(view, each, of) for each in product.inputs)


def _is_same(view: Pattern, name: str, other: str) -> bool:
    """Return whether two values are equal; exporters write one subtraction twice."""
    first, second = view.node(name, "Sub"), view.node(other, "Sub")
    return name == other or (first is not None and second is not None and first.inputs == second.inputs)


def _mean_axis(view: Pattern, name: str) -> int | None:
    """Return the first axis of a mean over all trailing dimensions that keeps them, or None."""
    node = view.node(name, "ReduceMean")
    if node is None or not node.attrs.get("keepdims", 1) or len(node.inputs) < 2:
        return None
    value, rank = view.constants.get(node.inputs[1]), len(view.types[node.inputs[0]].shape)
    if value is None or not value.size:
        return None
    axes = sorted(int(axis) % rank for axis in value.reshape(-1))
    return axes[0] if axes == list(range(axes[0], rank)) else None


def _extended(view: Pattern, norms: dict[str, _Norm], node: Node) -> _Norm | None:
    """Match a product or sum of a normalization found before and a constant."""
    if node.domain or node.op_type not in ("Mul", "Add"):
        return None
    for name, other in (node.inputs, node.inputs[::-1]):
        norm, value = norms.get(name), view.constants.get(other)
        if norm is None or value is None or not view.is_step(name):
            continue
        trailing = view.types[norm.x].shape[norm.axis :]
        fits = value.size and all(extent == 1 for extent in value.shape[: max(value.ndim - len(trailing), 0)])
        if not fits or view.types[node.outputs[0]].shape != view.types[norm.x].shape:
            continue
        wide = np.broadcast_to(value.reshape(value.shape[max(value.ndim - len(trailing), 0) :]), trailing)
        if node.op_type == "Mul" and norm.scale is None and norm.bias is None:
            return replace(norm, node=node, scale=wide)
        if node.op_type == "Add" and norm.bias is None:
            return replace(norm, node=node, bias=wide)
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
    return _fused_node(norm.node, "LayerNormalization", names, _LAYER_NORMALIZATION, **attrs)


def fuse_group_normalization(graph: Graph) -> Graph:
    """Replace ``reshaped(InstanceNormalization(reshaped(x), 1, 0)) * scale + shift`` by a GroupNormalization.

    ONNX has had it since opset 18 only, and torch's exporter still writes an instance normalisation of groups as
    channels. ``scale`` and ``shift`` are constants with one number for each channel; nothing else reads what lies
    between. Where each step is rounded to 16 bits, the steps stay.
    """
    view = Pattern(graph)

    def write(of: PassBuilder) -> None:
        added = _factor(view, of.node, "Mul")
        scaled = None if added is None else _factor(view, added[0], "Reshape")
        found = None if scaled is None else _by_groups(view, scaled[0])
        if added is None or scaled is None or found is None:
            raise KeptError
        norm, first = found
        x, channels = first.inputs[0], of.types[of.outputs[0]].shape[1]
        vectors = (of.reshaped(name, (channels,)) for name in (scaled[1], added[1]))
        attrs = {"num_groups": of.types[norm.inputs[0]].shape[1], "epsilon": norm.attrs.get("epsilon", 1e-5)}
        of("GroupNormalization", x, *vectors, output=of.outputs[0], **attrs)
        for each in (added[0], scaled[0], norm, first):
            of.scope.nodes[-1] = of.scope.nodes[-1].taking(each)

    return written(graph, write, "Add")


def _factor(view: Pattern, node: Node, op_type: str) -> tuple[Node, str] | None:
    """Return the step before a product or sum with one number for each channel, and these numbers."""
    result = view.types[node.outputs[0]]
    rank = len(result.shape)
    if rank < POSITIONS:
        return None
    each = (result.shape[1], *(1,) * (rank - 2))
    for before, numbers in (node.inputs, node.inputs[::-1]):
        step = view.step(before, op_type)
        if step is not None and numbers in view.constants and view.types[before] == result:
            return (step, numbers) if view.types[numbers].shape in (each, (1, *each)) else None
    return None


def _by_groups(view: Pattern, last: Node) -> tuple[Node, Node] | None:
    """Return the normalisation of groups before the last Reshape, and the first Reshape, if they are that."""
    norm = view.step(last.inputs[0], "InstanceNormalization")
    first = None if norm is None else view.step(norm.inputs[0], "Reshape")
    if norm is None or first is None:
        return None
    whole, rows = view.types[first.inputs[0]], view.types[norm.inputs[0]].shape
    is_same = whole == view.types[last.outputs[0]] and whole.dtype not in NARROW_FLOATS
    if not is_same or rows[0] != whole.shape[0] or whole.shape[1] % rows[1]:
        return None
    scale, shift = (view.constants.get(name) for name in norm.inputs[1:3])
    return (norm, first) if scale is not None and shift is not None and all(scale == 1) and not any(shift) else None


# Softmax and products


def zero_softmax(graph: Graph) -> Graph:
    """Replace ``Where(IsNaN(w), 0, w)`` by ``w``, a softmax with ``zeros``, if nothing else reads that.

    Torch's exporter writes it behind attention's weights. It means rows that a mask hides, but its operators also make
    0 of rows with NaN or +inf, and so does ``zeros="nan"``; torch's own operators, and ``zeros="hidden"``, do not.
    """
    view = Pattern(graph)

    def zeroed(node: Node) -> Node | None:
        """Return a Where as the softmax that it makes 0 of, or None."""
        condition, zero, weights = node.inputs
        question, softmax = view.step(condition, "IsNaN"), view.node(weights, "Softmax")
        if question is None or softmax is None or question.inputs != (weights,):
            return None
        value = view.constants.get(zero)
        if value is None or value.size != 1 or np.signbit(value).any() or value.any():
            return None
        is_other = view.types[weights] != view.types[node.outputs[0]]
        if is_other or weights in view.outputs or len(view.readers[weights]) != 2:
            return None
        result = softmax.with_(outputs=node.outputs, attrs={**softmax.attrs, "zeros": "nan"}, proto=None)
        return result.taking(question).taking(node)

    return replaced(graph, zeroed, "Where")


def merge_scales(graph: Graph) -> Graph:
    """Replace ``(a * x) @ (b * y)`` by ``(x @ y) * (a * b)`` where nothing else reads it.

    Queries and keys are each multiplied by the root of a factor in attention, so that no score is too large for
    float16. In float32 one factor behind the product, as torch computes it, is a part of its kernel or of attention's,
    where two before it are passes over memory. a and b are numbers that no product overflows without, nor sinks into
    denormals.
    """
    view = Pattern(graph)

    def scaled(name: str) -> tuple[str, float] | None:
        """Return the value that a value is a multiple of, and the factor."""
        node = view.step(name, "Mul")
        for source, factor in (node.inputs, node.inputs[::-1]) if node is not None else ():
            value = view.constants.get(factor)
            is_number = value is not None and value.size == 1 and view.types[source] == view.types[name]
            if value is not None and is_number and source not in view.constants:
                number = float(value.reshape(-1)[0])
                return (source, number) if is_moderate(number) else None
        return None

    def write(of: PassBuilder) -> None:
        left, right = map(scaled, of.inputs) if of.types[of.outputs[0]].dtype == "float32" else (None, None)
        if left is None or right is None:
            raise KeptError
        product, scale = of("MatMul", left[0], right[0]), of.constant(left[1] * right[1], "float32")
        of("Mul", product, scale, output=of.outputs[0])

    return written(graph, write, "MatMul")


def keep_leading_dimensions(graph: Graph) -> Graph:
    """Replace ``Reshape(Gemm(Reshape(x), w, b))`` by ``x @ w + b`` where the last dimension alone is changed.

    Exporters write a linear layer of tokens so. What follows element by element is a part of the product's kernel only
    if nothing stands between.
    """
    view = Pattern(graph)

    def write(of: PassBuilder) -> None:
        product, rows = _layer(view, of.node)
        output, (_, weights, bias) = of.outputs[0], (*product.inputs, "")[:3]
        of = of.scope.at(product)
        total = of("MatMul", rows, weights, output="" if bias else output)
        if bias:
            of("Add", total, bias, output=output)

    return written(graph, write, "Reshape")


def _layer(view: Pattern, node: Node) -> tuple[Node, str]:
    """Return the product before a Reshape, and the input of the Reshape before it; ``KeptError`` if there is none."""
    product, types = view.step(node.inputs[0], "MatMul", "Gemm"), view.types
    before = None if product is None or not _is_plain(product) else view.node(product.inputs[0], "Reshape")
    if product is None or before is None:
        raise KeptError
    flat, weights, bias = (*product.inputs, "")[:3]
    rows = before.inputs[0]
    matrix, shape = types[weights].shape, types[rows].shape
    if not len(matrix) == len(types[flat].shape) == 2 < len(shape) or shape[-1] != matrix[0]:
        raise KeptError
    is_kept = types[node.outputs[0]].shape == (*shape[:-1], matrix[1])
    if not is_kept or (bias and types[bias].shape not in ((matrix[1],), (1, matrix[1]), (1,), ())):
        raise KeptError
    return product, rows


def _is_plain(product: Node) -> bool:
    """Return whether a product turns and scales nothing."""
    if product.op_type == "MatMul":
        return True
    factors = (float(product.attrs.get(name, 1.0)) for name in ("alpha", "beta"))
    turned = (product.attrs.get(name, 0) for name in ("transA", "transB"))
    return not any(turned) and all(factor == 1.0 for factor in factors)


# What moves elements


def fuse_channel_shuffle(graph: Graph) -> Graph:
    """Replace channels reshaped to (groups, channels of a group), transposed and joined again by ChannelShuffle.

    The node made is ``opbuild.ChannelShuffle`` with attribute ``group``; lowering knows it, the host does not need to.
    """
    view = Pattern(graph)

    def find(node: Node) -> Node | None:
        transpose = view.node(node.inputs[0], "Transpose")
        split = None if transpose is None else view.node(transpose.inputs[0], "Reshape")
        if transpose is None or split is None:
            return None
        shape, parts = view.types[split.inputs[0]].shape, view.types[split.outputs[0]].shape
        order = (0, 2, 1, *range(3, len(parts)))
        if len(shape) not in (3, 4) or tuple(transpose.attrs.get("perm") or ()) != order:
            return None
        divided = len(parts) == len(shape) + 1 and (parts[0], parts[1] * parts[2], *parts[3:]) == shape
        if not divided or view.types[node.outputs[0]].shape != shape or 0 in shape:
            return None
        return _fused_node(node, "ChannelShuffle", split.inputs[:1], (), group=parts[1]).with_(domain="opbuild")

    return replaced(graph, find, "Reshape")


def reshape_whole_gathers(graph: Graph) -> Graph:
    """Replace Gather and GatherND by Reshape where their constant indices are all places, one after the other."""

    def write(of: PassBuilder) -> None:
        if not _takes_all(graph, of.node):
            raise KeptError
        of.reshaped(of.inputs[0], of.types[of.outputs[0]].shape, of.outputs[0])

    return written(graph, write, "Gather", "GatherND")


def _takes_all(graph: Graph, node: Node) -> bool:
    if node.attrs.get("batch_dims", 0):
        return False
    indices, shape = graph.constants.get(node.inputs[1]), graph.types[node.inputs[0]].shape
    if indices is None or indices.dtype == object or is_open(shape) or is_open(graph.types[node.outputs[0]].shape):
        return False
    if node.op_type == "Gather":
        return _counts(indices, shape[int(node.attrs.get("axis", 0))])
    axes = shape[: indices.shape[-1]]
    if indices.size != prod(axes) * len(axes) or (indices < 0).any():
        return False
    return _counts(np.ravel_multi_index(tuple(np.moveaxis(indices, -1, 0)), axes, mode="clip"), prod(axes)) and bool(
        (indices < np.array(axes)).all()
    )


def _counts(indices: Array, extent: int) -> bool:
    return indices.size == extent and np.array_equal(indices.reshape(-1), np.arange(extent))
