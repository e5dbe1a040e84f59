"""Float16 and float64 networks computed in float32, for ``precision_mode=force_fp32``.

Every value inside becomes float32: constants, intermediates, what Cast and its like make. Inputs and outputs keep the
model's types, so that callers see no difference but the digits; they are converted at the edge. A node that brings its
own definition (a graph of its own, an operator of another domain) keeps its types, between conversions.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from opbuild.graph.shape_rules import ONNX_DTYPES, ONNX_NUMBERS
from opbuild.graph.types import Array, Graph, Node, TensorType

OTHER_FLOATS = ("float16", "bfloat16", "float64")
FLOAT32 = "float32"

TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype", "stash_type")
"""Attributes that hold an element type: a name, or ONNX's number."""


def force_float32(graph: Graph) -> Graph:
    """Return a graph that computes in float32 what another one computes in float16, bfloat16 and float64.

    Finite constants beyond float32's range become its greatest number of that sign.

    Args:
        graph: A typed graph; returned as it is if it has no such type.
    """
    if all(kind.dtype not in OTHER_FLOATS for kind in graph.types.values()):
        return graph
    conversion = _Conversion(graph)
    for name in graph.inputs:
        if conversion.is_other(name):
            conversion.enter(name)
    for node in graph.nodes:
        conversion.take(node)
    for name in graph.outputs:
        conversion.leave(name)
    return conversion.result()


class _Conversion:
    """Collects the new graph; ``inside`` is the float32 name of each value of another floating type."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.types = dict(graph.types)
        self.constants = dict(graph.constants)
        self.nodes: list[Node] = []
        self.inside: dict[str, str] = {}
        self.assigned = {*graph.inputs, *graph.constants}

    def is_other(self, name: str) -> bool:
        """Return whether a value of the model is of a floating type that is to go."""
        return bool(name) and self.graph.types[name].dtype in OTHER_FLOATS

    def enter(self, name: str) -> None:
        """Convert a value that keeps its type, for use inside."""
        self._cast(name, self._float32(name), FLOAT32)

    def take(self, node: Node) -> None:
        """Append a node on float32 values."""
        if node.proto is not None:
            self._take_as_it_is(node)
            return
        inputs = tuple(self._read(name) for name in node.inputs)
        outputs = tuple(self._float32(name) if self.is_other(name) else name for name in node.outputs)
        self.assigned.update(outputs)
        attrs = {name: float32_attribute(name, value) for name, value in node.attrs.items()}
        converted = node.with_(inputs=inputs, outputs=outputs, attrs=attrs)
        if node.op_type in ("Cast", "CastLike") and self.types[inputs[0]] == self.types[outputs[0]]:
            converted = converted.with_(op_type="Identity", inputs=inputs[:1], attrs={})
        self.nodes.append(converted)

    def leave(self, name: str) -> None:
        """Convert a value that was computed in float32 to the model's type."""
        if self.is_other(name) and name not in self.assigned:
            self._cast(self.inside[name], name, self.graph.types[name].dtype)
            self.assigned.add(name)

    def result(self) -> Graph:
        """Return the new graph."""
        return self.graph.with_(nodes=tuple(self.nodes), types=self.types, constants=self.constants)

    def _take_as_it_is(self, node: Node) -> None:
        for name in node.inputs:
            if name:
                self.leave(name)
        self.nodes.append(node)
        self.assigned.update(node.outputs)
        for name in node.outputs:
            if self.is_other(name):
                self.enter(name)

    def _read(self, name: str) -> str:
        """Return the float32 form of a value; a constant is converted when it is first read."""
        if not self.is_other(name):
            return name
        if name not in self.inside:
            self.constants[self._float32(name)] = in_float32(self.graph.constants[name])
        return self.inside[name]

    def _float32(self, name: str) -> str:
        """Return the name of the float32 form of a value, made when it is first asked for."""
        if name not in self.inside:
            fresh = f"{name}/{FLOAT32}"
            while fresh in self.types:
                fresh += "_"
            self.inside[name] = fresh
            self.types[fresh] = TensorType(FLOAT32, self.graph.types[name].shape)
        return self.inside[name]

    def _cast(self, source: str, target: str, dtype: str) -> None:
        self.nodes.append(Node("Cast", (source,), (target,), {"to": dtype}, f"{target}/Cast"))


def in_float32(value: Array) -> Array:
    """Return a constant in float32, finite where it was; a view of one element stays one."""
    if value.size > 1 and not any(value.strides):
        return np.broadcast_to(in_float32(value.reshape(-1)[:1]), value.shape)
    greatest = float(np.finfo(np.float32).max)
    limited = np.where(np.isfinite(value), np.clip(value.astype(np.float64), -greatest, greatest), value)
    return limited.astype(np.float32)


def float32_attribute(name: str, value: Any, others: Collection[str] = OTHER_FLOATS) -> Any:
    """Return an attribute of an operator that is to compute in float32 what it computed in ``others``."""
    if isinstance(value, np.ndarray) and value.dtype.name in others:
        return in_float32(value)
    if name in TYPE_ATTRIBUTES:
        if isinstance(value, str) and value in others:
            return FLOAT32
        if isinstance(value, int) and ONNX_DTYPES.get(value) in others:
            return ONNX_NUMBERS[FLOAT32]
    return value
