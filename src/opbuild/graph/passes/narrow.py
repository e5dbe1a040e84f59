"""float16 and bfloat16 computed in float32: storage of 16 bits at the edges, the numbers of 16 bits everywhere.

Machines without arithmetic for 16 bits convert each operand where it is read and each result where it is stored, which
costs more than the arithmetic. So inside a network a value of 16 bits lies as a float32 that has one of its numbers:
each operator reads float32, computes in it, and its result is rounded once, by a conversion there and back that fuses
into the operator as any elementwise operator does. What only moves elements moves whichever form there is, and
elementwise operators of what was not computed, inputs and constants, read 16 bits themselves. A float16 convolution
and the BatchNormalization behind it are rounded once, so that they are one operator as in float32.

For ``precision_mode=force_fp32`` float64 does, too, and nothing is rounded: constants, intermediates, what Cast and its
like make become float32. Inputs and outputs keep the model's types, so that callers see no difference but the digits. A
node that brings its own definition (a graph of its own, an operator of another domain) keeps its types.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import Any

import numpy as np

from opbuild.dtypes import NARROW_FLOATS, greatest
from opbuild.graph.constants import Deferred
from opbuild.graph.passes.batchnorm import WEIGHTED, batchnorm_step
from opbuild.graph.passes.rewriter import NewGraph
from opbuild.graph.shape_rules import ONNX_DTYPES, ONNX_NUMBERS
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.operations.table import BY_TYPE, of_onnx

OTHER_FLOATS = ("float16", "bfloat16", "float64")
FLOAT32 = "float32"

TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype", "stash_type")
"""Attributes that hold an element type: a name, or ONNX's number."""


def in_float32(value: Array) -> Array:
    """Return a constant in float32, finite where it was; a view of one element stays one."""
    if value.size > 1 and not any(value.strides):
        return np.broadcast_to(in_float32(value.reshape(-1)[:1]), value.shape)
    greatest = float(np.finfo(np.float32).max)
    limited = np.where(np.isfinite(value), np.clip(value.astype(np.float64), -greatest, greatest), value)
    return limited.astype(np.float32)


def float32_attribute(name: str, value: Any, others: Collection[str]) -> Any:
    """Return an attribute of an operator that is to compute in float32 instead of in ``others``."""
    if isinstance(value, np.ndarray) and value.dtype.name in others:
        return in_float32(value)
    if name in TYPE_ATTRIBUTES:
        if isinstance(value, str) and value in others:
            return FLOAT32
        if isinstance(value, int) and ONNX_DTYPES.get(value) in others:
            return ONNX_NUMBERS[FLOAT32]
    return value


MOVERS = {
    **dict.fromkeys((
        "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape",
        "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze",
    ), (0,)),
    **dict.fromkeys(("Pad", "ScatterElements", "ScatterND"), (0, 2)),
}  # fmt: skip
"""Operators that move elements, and which inputs hold those; all inputs of Concat do."""

EXACT = frozenset(("Clip", "Compress", "GlobalMaxPool", "MaxPool", "MaxUnpool", "ReduceMax", "ReduceMin", "TopK"))
"""Operators whose results are among their operands' numbers, beside the operations that are exact."""

KEPT = frozenset(
    ("BitCast", "Bernoulli", "Constant", "ConstantOfShape", "EyeLike", "If", "Loop", "RandomNormalLike",
     "RandomUniformLike", "Scan")
)  # fmt: skip
"""Operators that are left as they are: what they do depends on the type of what they read."""

_SINGLE = ("Clip", "IsInf", "Pow")
"""Elementwise operators that are one operation, though no record has their name."""

DOMAINS = ("", "com.microsoft", "opbuild")

LEAST_WEIGHT = 16
"""Rows and columns from which on a constant matrix of 16 bits stays one."""

SMALL = 1024
"""Elements up to which a constant is converted at once, so that its value is known to all passes."""


def widen_narrow_floats(graph: Graph) -> Graph:
    """Return a typed graph that computes float16 and bfloat16, if it has any, in float32 and rounds each result."""
    if all(kind.dtype not in NARROW_FLOATS for kind in graph.types.values()):
        return graph
    widening = _Widening(graph)
    for node in graph.nodes:
        widening.take(node)
    for name in graph.outputs:
        widening.narrow(name)
    return widening.to.graph(graph)


class _Widening:
    """Collects the new graph.

    A value of 16 bits is ``there`` under its own name, as float32 under another name, or both; it was ``computed`` if
    it was float32 first.
    """

    others: Collection[str] = NARROW_FLOATS
    """The types that go."""

    def __init__(self, graph: Graph) -> None:
        self.source = graph
        self.to = NewGraph(graph)
        self.wide: dict[str, str] = {}
        self.there = {*graph.inputs, *graph.constants}
        self.computed: set[str] = set()
        self.readers = graph.consumers()

    def take(self, node: Node) -> None:
        """Append a node, reading and assigning the forms that suit it."""
        if not any(map(self._is_narrow, (*node.inputs, *node.outputs))):
            self._append(node)
        elif node.domain not in DOMAINS or node.op_type in KEPT or (node.proto is not None and not node.domain):
            self._take_as_it_is(node)
        elif node.op_type in ("Cast", "CastLike"):
            self._take_cast(node)
        elif not node.domain and (node.op_type in MOVERS or node.op_type == "Concat"):
            self._take_mover(node)
        elif not any(map(self._is_narrow, node.inputs)) or self._reads_narrow(node):
            self._take_as_it_is(node)
        else:
            self._take_wide(node)

    def narrow(self, name: str) -> str:
        """Return a value in its own type."""
        if name and self._is_narrow(name) and name not in self.there:
            self._cast(self.wide[name], name, self.source.types[name].dtype)
            self.there.add(name)
        return name

    def widened(self, name: str) -> str:
        """Return a value of 16 bits as float32; another one as it is."""
        if not name or not self._is_narrow(name):
            return name
        if name not in self.wide:
            self.wide[name] = (
                self._widened_constant(name) if name in self.source.constants else self._float32_name(name)
            )
            if name not in self.source.constants:
                self._cast(name, self.wide[name], FLOAT32)
        return self.wide[name]

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _take_as_it_is(self, node: Node) -> None:
        for name in (*node.inputs, *node.attrs.get("captures", ())):
            if name in self.source.types:
                self.narrow(name)
        self._append(node)

    def _take_cast(self, node: Node) -> None:
        """A conversion reads the number, whichever form it has."""
        if self._is_narrow(node.inputs[0]) and node.inputs[0] not in self.computed:
            self._take_as_it_is(node)
            return
        x, output = self.widened(node.inputs[0]), node.outputs[0]
        dtype = self.source.types[output].dtype
        if self.to.types[x].dtype == dtype:
            self._append(node.with_(op_type="Identity", inputs=(x,), attrs={}))
        else:
            self._append(node.with_(op_type="Cast", inputs=(x,), attrs={**node.attrs, "to": dtype}))
            self.computed.update(node.outputs if self.to.types[x].dtype == FLOAT32 else ())

    def _take_mover(self, node: Node) -> None:
        places = MOVERS.get(node.op_type, range(len(node.inputs)))
        data = [node.inputs[place] for place in places if place < len(node.inputs) and node.inputs[place]]
        moving = [name for name in data if name not in self.source.constants]
        if not moving or not self.computed.issuperset(moving):
            self._take_as_it_is(node)
        else:
            self._take_wide(node, exact=True)

    def _reads_narrow(self, node: Node) -> bool:
        """Return whether a node is one operation on uncomputed values: several are in float32 and round once."""
        if self.computed.intersection(node.inputs):
            return False
        if node.domain == "opbuild":
            return node.op_type in BY_TYPE
        return not node.domain and (node.op_type in _SINGLE or of_onnx(node.op_type, node.attrs) is not None)

    def _is_normalized_next(self, node: Node) -> bool:
        """Return whether only a BatchNormalization reads a float16 result, which folds into the operator's weights.

        Weights of bfloat16 stay what they are: they are multiplied in pairs, folded ones could not be.
        """
        name = node.outputs[0]
        if node.domain or node.op_type not in WEIGHTED or name in self.source.outputs:
            return False
        readers = self.readers.get(name, [])
        if self.source.types[name].dtype != "float16" or node.inputs[1] not in self.source.constants:
            return False
        is_normalized = [each.op_type for each in readers] == ["BatchNormalization"]
        return is_normalized and batchnorm_step(readers[0], self.source.constants) is not None

    def _take_wide(self, node: Node, exact: bool = False) -> None:
        node = self._bounded(node) if node.op_type == "Clip" else node
        found = None if node.domain else of_onnx(node.op_type, node.attrs)
        exact = exact or (not node.domain and node.op_type in EXACT) or (found is not None and found[1].exact)
        exact = exact or self._is_normalized_next(node)
        inputs = tuple(
            name if place == 1 and self._is_weight(node, name) else self.widened(name)
            for place, name in enumerate(node.inputs)
        )
        attrs = {name: float32_attribute(name, value, self.others) for name, value in node.attrs.items()}
        outputs = tuple(self._float32_name(name) if self._is_narrow(name) else name for name in node.outputs)
        self._append(node.with_(inputs=inputs, outputs=outputs, attrs=attrs, proto=None))
        self.computed.update(node.outputs)
        for name, output in zip(node.outputs, outputs, strict=True):
            if self._is_narrow(name) and exact:
                self.wide[name] = output
            elif self._is_narrow(name):
                self._cast(output, name, self.source.types[name].dtype)
                self.there.add(name)

    def _is_weight(self, node: Node, name: str) -> bool:
        """Return whether a constant is a matrix that a product reads in its own type: half the memory."""
        if node.domain or node.op_type not in ("MatMul", "Gemm") or not self._is_narrow(name):
            return False
        *batch, rows, columns = (1, 1, *self.source.types[name].shape)
        return name in self.source.constants and prod(batch) == 1 and min(rows, columns) >= LEAST_WEIGHT

    def _bounded(self, node: Node) -> Node:
        """Return Clip with both bounds: an absent one is the limit of the type, which is the model's."""
        kind = self.source.types[node.inputs[0]]
        if kind.dtype not in NARROW_FLOATS:
            return node
        bounds = [*node.inputs[1:], "", ""][:2]
        for place, limit in enumerate((-greatest(kind.dtype), greatest(kind.dtype))):
            bounds[place] = bounds[place] or self.to.constant(np.array(limit, np.float32), f"{node.name}/bound")
        return node.with_(inputs=(node.inputs[0], *bounds))

    # -- values -------------------------------------------------------------------------------------------------------

    def _append(self, node: Node) -> None:
        self.to.nodes.append(node)
        self.there.update(node.outputs)

    def _is_narrow(self, name: str) -> bool:
        kind = self.source.types.get(name)
        return kind is not None and kind.dtype in self.others

    def _float32_name(self, name: str) -> str:
        """Return a name for the float32 form of a value, with its type."""
        fresh = self.to.fresh(f"{name}/{FLOAT32}")
        self.to.types[fresh] = TensorType(FLOAT32, self.source.types[name].shape)
        return fresh

    def _widened_constant(self, name: str) -> str:
        kind, value = self.source.types[name], self.source.constants[name]
        if kind.size <= SMALL or not any(value.strides):
            return self.to.constant(value.astype(np.float32), f"{name}/{FLOAT32}")
        recipe = f"float32 of {kind.dtype}"
        wide = Deferred(TensorType(FLOAT32, kind.shape), recipe, (value,), lambda: value.astype(np.float32), kind.dtype)
        return self.to.constant(wide, f"{name}/{FLOAT32}")

    def _cast(self, source: str, target: str, dtype: str) -> None:
        self.to.nodes.append(Node("Cast", (source,), (target,), {"to": dtype}, f"{target}/Cast"))


class _Conversion(_Widening):
    """Collects a graph in which all floats are float32."""

    others = OTHER_FLOATS

    def take(self, node: Node) -> None:
        """Append a node on float32 values."""
        if node.proto is not None:
            self._take_as_it_is(node)
            for name in node.outputs:
                self.widened(name)
            return
        if node.op_type in ("Cast", "CastLike"):
            read, made = (self._computed_dtype(name) for name in (node.inputs[0], node.outputs[0]))
            node = node.with_(op_type="Identity", inputs=node.inputs[:1], attrs={}) if read == made else node
        self._take_wide(node, exact=True)

    def _computed_dtype(self, name: str) -> str:
        return FLOAT32 if self._is_narrow(name) else self.source.types[name].dtype

    def _is_weight(self, node: Node, name: str) -> bool:
        return False

    def _bounded(self, node: Node) -> Node:
        return node

    def _widened_constant(self, name: str) -> str:
        return self.to.constant(in_float32(self.source.constants[name]), f"{name}/{FLOAT32}")


def force_float32(graph: Graph) -> Graph:
    """Return a typed graph that computes in float32 where another one computes in float16, bfloat16 and float64.

    Finite constants beyond float32's range become its greatest number of that sign.
    """
    if all(kind.dtype not in OTHER_FLOATS for kind in graph.types.values()):
        return graph
    conversion = _Conversion(graph)
    for name in graph.inputs:
        conversion.widened(name)
    for node in graph.nodes:
        conversion.take(node)
    for name in graph.outputs:
        conversion.narrow(name)
    return conversion.to.graph(graph)
