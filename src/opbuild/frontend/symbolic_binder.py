"""Rewrites of nodes that are left to run where extents are open."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from opbuild.errors import ModelError, RunError
from opbuild.frontend.block import blocks
from opbuild.frontend.open_values import Types, Values, fixed, is_data, is_open_value
from opbuild.graph.breaks import bound_of
from opbuild.graph.extents import as_extent, is_open
from opbuild.graph.graph_builder import integers
from opbuild.graph.indices import UNCHECKED, bounds_of
from opbuild.graph.passes.fold import RANDOM
from opbuild.graph.passes.indices import is_inside
from opbuild.graph.passes.infer import type_of
from opbuild.graph.ranges import table_slice
from opbuild.graph.reals import bits_of
from opbuild.graph.shape_rules import UnknownTypeError, UnknownValueError
from opbuild.graph.tables import numbers_of
from opbuild.graph.types import TABLE, Array, Node, TensorType


class SymbolicBinder:
    """Holds a graph while it is bound, and prepares nodes for values that follow from open extents."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._types: dict[str, TensorType] = {}
        self._constants: dict[str, Array] = {}
        self._bounds: tuple[str, ...] = ()
        self._deferred: dict[str, Node] = {}  # what makes a value that follows from extents, but not as a formula
        self._tables: dict[str, str] = {}  # what an open value is called where it is data

    @abstractmethod
    def fresh(self, name: str) -> str:
        """Return an unused name that begins with ``name``."""

    @abstractmethod
    def value(self, name: str) -> Array:
        """Return a constant."""

    def bounded_value(self, name: str, least: int) -> int | None:
        """Return the greater of a value and an extent, if that is known alone; see ``GraphBreak.least``."""
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

    def fixed_values(self, names: Sequence[str], values: Values) -> list[Array | None]:
        """Return values, those that are open as the numbers of the size at hand."""
        return [
            value if value is None or not is_open_value(value) else fixed(value, self._types[name].dtype)
            for name, value in zip(names, values, strict=True)
        ]

    # What runs although it follows from extents alone

    def defer(self, node: Node) -> None:
        """Take note of a node that is to run, if all that it reads is known or follows from extents."""
        reads = [name for name in node.inputs if name]
        if not all(name in self._constants or name in self._deferred for name in reads):
            return
        has_open = any(name in self._deferred or is_open_value(self._constants.get(name)) for name in reads)
        if has_open and not (node.domain or node.op_type in RANDOM or any(blocks(node))):
            self._deferred.update((name, node) for name in node.outputs if name)

    def settle_inputs(self, node: Node, error: UnknownTypeError) -> bool:
        """Evaluate the values that decide a node's types, at the example size, and return whether there are any."""
        names = (node.inputs[error.index],) if isinstance(error, UnknownValueError) else node.inputs
        settled = [self.settle(name) or self.fix(name) for name in dict.fromkeys(names)]
        return any(settled)

    def fix(self, name: str) -> bool:
        """Make an open value that of the size at hand, and return whether it was open."""
        value = self._constants.get(name)
        if value is None or not is_open_value(value):
            return False
        self._constants[name] = fixed(value, self._types[name].dtype)
        return True

    def settle(self, name: str) -> bool:
        """Make a constant of a value that follows from extents, that of the size at hand; return whether it is one."""
        node = self._deferred.get(name)
        if node is None:
            return False
        try:
            values = [self.value(each) if each else None for each in node.inputs]
            types = [self._types[each] if each else None for each in node.inputs]
            found = self._known(node, types, values) if any(map(is_open_value, values)) else None
            if found is None:
                found = self.evaluated(node, self.fixed_values(node.inputs, values))
        except (RunError, ModelError, LookupError):
            found = ()
        for each in node.outputs:
            self._deferred.pop(each, None)
        if not found:
            return False
        self._nodes = [each for each in self._nodes if set(node.outputs).isdisjoint(each.outputs)]
        self.assign(node.outputs, found, [self._types.get(each, TensorType("", ())) for each in node.outputs])
        return True

    @abstractmethod
    def _known(self, node: Node, types: Types, constants: Values) -> Sequence[Array] | None:
        """Return the outputs of a node that are known, open ones among them; None if they are not."""

    @abstractmethod
    def evaluated(self, node: Node, inputs: Values) -> Sequence[Array]:
        """Return the outputs of a node whose inputs are known."""

    @abstractmethod
    def assign(self, names: Sequence[str], values: Sequence[Array], types: Sequence[TensorType] = ()) -> None:
        """Declare computed values as constants."""

    # What reads such values

    def running(self, node: Node, constants: Values) -> Node:
        """Return a node that is left to run: of open values it reads data as tables, and mere movements are views."""
        node = self._with_sure_indices(node)
        if not node.domain and node.op_type in ("ConstantOfShape", "Gather", "Range"):
            node = self._as_view(node, constants)
        inputs = [
            self._as_data(name) if is_data(node, index) and is_open_value(self._constants.get(name)) else name
            for index, name in enumerate(node.inputs)
        ]
        return node if tuple(inputs) == node.inputs else node.with_(inputs=tuple(inputs))

    def _with_sure_indices(self, node: Node) -> Node:
        """Return a node whose open indices are in range, which is a condition; others are refused when it runs."""
        bounds = bounds_of(node, lambda index: self._types[node.inputs[index]].shape)
        value = None if bounds is None else self._constants.get(node.inputs[bounds.input])
        if bounds is None or value is None or not is_open_value(value) or not is_inside(value, bounds):
            return node
        return node.with_(attrs={**node.attrs, UNCHECKED: 1})

    def _as_data(self, name: str) -> str:
        """Return a value that a kernel can read in place of an open one: a table of its numbers."""
        if name not in self._tables:
            value, dtype, label = self._constants[name], self._types[name].dtype, f"{name}/numbers"
            self._tables[name] = found = self.fresh(label)
            self._types[found] = TensorType(dtype, value.shape)
            attrs = {"table": "numbers", "arguments": (numbers_of(value, dtype),)}
            self._nodes.append(Node(TABLE, (), (found,), attrs, label, "opbuild"))
        return self._tables[name]

    def _as_view(self, node: Node, constants: Values) -> Node:
        if node.op_type == "ConstantOfShape":
            value = np.asarray(node.attrs.get("value", np.zeros(1, np.float32))).reshape(1)
            return node.with_(op_type="Expand", inputs=(self.constant(value), node.inputs[0]), attrs={}, proto=None)
        if node.op_type == "Gather":
            return self._as_slice(node)
        if any(value is None for value in constants):
            return node
        return self._range(node, [value.reshape(-1).tolist()[0] for value in constants if value is not None])

    def _range(self, node: Node, bounds: Sequence[Any]) -> Node:
        """Return a node for consecutive numbers, or ones at equal distances: a part of a table, or a table."""
        kind = self._types[node.outputs[0]]
        table = table_slice(bounds, kind.dtype)
        if table is not None:
            return self._part(node, self.constant(table), 0, bounds)
        start, _, delta = map(bits_of, bounds) if np.issubdtype(np.dtype(kind.dtype), np.floating) else bounds
        attrs = {"table": "evenly", "arguments": (start, delta, *kind.shape)}
        return node.with_(op_type=TABLE, domain="opbuild", inputs=(), attrs=attrs, proto=None)

    def _as_slice(self, node: Node) -> Node:
        """Return the node of a gather at open indices: a slice of the data where they lie at equal distances."""
        indices, kind = self._constants.get(node.inputs[1]), self._types[node.outputs[0]]
        shape = self._types[node.inputs[0]].shape
        axis = int(node.attrs.get("axis", 0)) % len(shape)
        if indices is None or not node.attrs.get(UNCHECKED) or not indices.size or indices.ndim > 1:
            return node
        places = [place + shape[axis] if place < 0 else place for place in indices.reshape(-1).tolist()]
        step, *others = [later - place for place, later in pairwise(places)] or [1]
        if is_open([step, *others]) or step == 0 or any(other != step for other in others):
            return node
        end = places[-1] + 1 if step > 0 else places[-1] - 1 if places[-1] > 0 else -(2**62)
        if indices.ndim:
            return self._part(node, node.inputs[0], axis, (places[0], end, step))
        whole = self.fresh(node.outputs[0])
        self._types[whole] = TensorType(kind.dtype, (*shape[:axis], 1, *shape[axis + 1 :]))
        self._nodes.append(self._part(node.with_(outputs=(whole,)), node.inputs[0], axis, (places[0], end, step)))
        axes = self.constant(np.array([axis]))
        return node.with_(op_type="Squeeze", inputs=(whole, axes), attrs={}, proto=None)

    def _part(self, node: Node, data: str, axis: int, bounds: Sequence[Any]) -> Node:
        """Return a node as the Slice of one axis by a start, an end and a step."""
        start, end, step = (self.constant(integers([bound])) for bound in bounds)
        inputs = (data, start, end, self.constant(np.array([axis])), step)
        return node.with_(op_type="Slice", inputs=inputs, attrs={}, proto=None)
