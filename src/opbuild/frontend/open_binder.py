"""What becomes of nodes that are left to run where extents are open."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from opbuild.frontend.open_values import fixed, is_data, is_open_value
from opbuild.graph.cut import bound_of
from opbuild.graph.extents import as_extent, is_open
from opbuild.graph.passes.infer import type_of
from opbuild.graph.ranges import table_slice
from opbuild.graph.types import Array, Node, TensorType


class OpenBinder:
    """Holds a graph while it is bound, and prepares nodes for values that follow from open extents."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._types: dict[str, TensorType] = {}
        self._constants: dict[str, Array] = {}
        self._bounds: tuple[str, ...] = ()

    @abstractmethod
    def fresh(self, name: str) -> str:
        """Return an unused name that begins with ``name``."""

    @abstractmethod
    def value(self, name: str) -> Array:
        """Return a constant."""

    def bounded_value(self, name: str, least: int) -> int | None:
        """Return the greater of a value and an extent, if that is known alone; see ``Cut.least``."""
        for known in self._bounds:
            bound = bound_of(known, name)
            if bound is not None and (self._types[bound[0]].shape[bound[1]] if bound[0] else 0) <= least:
                return max(least, as_extent(self.value(known).reshape(-1)[0]))
        return None

    def constant(self, value: Array) -> str:
        """Add a constant and return its name."""
        name = self.fresh("constant")
        self._constants[name], self._types[name] = value, type_of(value)
        return name

    def fixed_values(self, names: Sequence[str], values: Sequence[Array | None]) -> list[Array | None]:
        """Return values, those that are open as the integers of the size at hand."""
        return [
            value if value is None or not is_open_value(value) else fixed(value, self._types[name].dtype)
            for name, value in zip(names, values, strict=True)
        ]

    def running(self, node: Node, constants: Sequence[Array | None]) -> Node:
        """Return a node that is left to run: of open values it reads no data, and what it fills or counts is a view."""
        if not node.domain and node.op_type in ("ConstantOfShape", "Range"):
            node = self._as_view(node, constants)
        inputs = [
            self._as_data(name) if is_data(node, index) and is_open_value(self._constants.get(name)) else name
            for index, name in enumerate(node.inputs)
        ]
        return node if tuple(inputs) == node.inputs else node.with_(inputs=tuple(inputs))

    def _as_data(self, name: str) -> str:
        """Return a value that a kernel can read in place of an open one: a number is an element of a table."""
        value, kind = self._constants[name], self._types[name]
        number = value.reshape(-1).tolist()[0] if value.size else 0
        table = table_slice((number, number + 1, 1), kind.dtype) if value.size == 1 else None
        if table is None:
            self._constants[name] = fixed(value, kind.dtype)
            return name
        places = [self.constant(np.array([place], object)) for place in (number, number + 1)]
        element, read = self.fresh(name), (self.constant(table), *places, self.constant(np.zeros(1, np.int64)))
        self._types[element] = TensorType(kind.dtype, (1,))
        self._nodes.append(Node("Slice", read, (element,), {}, f"{name}/extent"))
        if not kind.shape:
            flat, element = element, self.fresh(name)
            self._types[element] = kind
            self._nodes.append(Node("Squeeze", (flat,), (element,), {}, f"{name}/number"))
        return element

    def _as_view(self, node: Node, constants: Sequence[Array | None]) -> Node:
        if node.op_type == "ConstantOfShape":
            value = np.asarray(node.attrs.get("value", np.zeros(1, np.float32))).reshape(1)
            return node.with_(op_type="Expand", inputs=(self.constant(value), node.inputs[0]), attrs={}, proto=None)
        if any(value is None for value in constants):
            return node
        bounds = [value.reshape(-1).tolist()[0] for value in constants if value is not None]
        table = table_slice(bounds, self._types[node.outputs[0]].dtype)
        if table is None:
            return node
        places = [self.constant(np.array([bound], object if is_open([bound]) else np.int64)) for bound in bounds]
        axes = self.constant(np.zeros(1, np.int64))
        inputs = (self.constant(table), places[0], places[1], axes, places[2])
        return node.with_(op_type="Slice", inputs=inputs, attrs={}, proto=None)
