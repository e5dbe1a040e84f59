"""Graph, Node and TensorType: a network between the front end and lowering.

A graph belongs to one input signature: every type in it has a concrete shape. Values are named, each is assigned once,
and nodes stand in topological order. Operator types are those of the newest ONNX operator set, plus opbuild's own in
domain ``opbuild`` (see ``graph/passes``). Passes take a graph and return a graph; none changes its argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, TypeAlias

import numpy as np

from opbuild.dtypes import ADDED, itemsize
from opbuild.platform.records import dataclass, field, replace
from opbuild.text.plural import counted

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]
Attribute: TypeAlias = Any
"""An int, float, str, bytes, tuple of them or numpy array; ``Any``, because only the operator's type says which."""

COLLECTIVES = "opbuild.ranks"
"""Domain of the operators by which ranks communicate. They run on the host; each counts even if nobody reads it."""

IN_RANGE = "InRange"
"""The operator of domain ``opbuild`` that refuses indices (``graph/indices.py``)."""

TABLE = "Table"
"""The operator of domain ``opbuild`` that gives a table (``graph/tables.py``): its name and the arguments without the
element type, which is the output's."""

START, WAIT = "Start", "Wait"
"""What types of such operators end with that only begin: these give a ticket, for which those give the result."""

DTYPES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    *ADDED,
)  # fmt: skip
"""Element types, by their numpy names; those that ``dtypes.ADDED`` names are ``ml_dtypes``'."""

MOST_ELEMENTS = 2**31 - 1
"""Elements of one tensor at most: kernels count them in 32 bits."""

MOST_DIMENSIONS = 32
"""Dimensions of one tensor at most: numpy, which serves what has no kernel, has no more in all its releases."""


@dataclass(frozen=True)
class TensorType:
    """Element type (a numpy name) and concrete shape of a value; the shape is row-major, outermost first."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes, dense."""
        return self.size * itemsize(self.dtype)

    @property
    def problem(self) -> str:
        """The reason that no tensor can have this type; empty if one can.

        Extents count even beside one of 0: what steps over a tensor multiplies them.
        """
        if all(type(extent) is int for extent in self.shape):
            return self._problem()
        from opbuild.graph.extents import decided_once  # a network of fixed sizes needs none

        return decided_once(self.shape, self._problem)

    def _problem(self) -> str:
        if any(extent < 0 for extent in self.shape):
            return f"{self} has a negative dimension"
        if prod(max(extent, 1) for extent in self.shape) > MOST_ELEMENTS:
            return f"{self} has more than {counted(MOST_ELEMENTS, 'element')}"
        if len(self.shape) > MOST_DIMENSIONS:
            return f"{self} has more than {counted(MOST_DIMENSIONS, 'dimension')}"
        return ""

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def broadcast_shapes(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape that ``shapes`` have together under numpy's broadcasting; None if they do not fit."""
    from opbuild.graph.extents import always_equal, is_one  # a network that was built before broadcasts nothing

    result: list[int] = []
    for shape in shapes:
        result = [1] * (len(shape) - len(result)) + result
        for position, extent in enumerate(shape, len(result) - len(shape)):
            known = result[position]
            if always_equal(known, extent) or is_one(extent):
                continue
            if not is_one(known) and extent in (known, 1):
                continue
            if not is_one(known) and known != 1:
                return None
            result[position] = extent
    return tuple(result)


@dataclass(frozen=True, eq=False)
class Node:
    """One operator of a network.

    Attributes:
        op_type: The operator's type, as ONNX spells it.
        inputs: Names of the values read; ``""`` stands for an optional input that is absent.
        outputs: Names of the values assigned; ``""`` for an output that nobody asked for.
        attrs: Attributes by name: ints, floats, strings, tuples of them, numpy arrays.
        name: The node's name in the model, for messages and reports; never empty.
        domain: The operator set; ``""`` is ONNX's own, ``opbuild`` this project's.
        made_of: Types of the model's operators that passes made this one of; empty: its own type alone.
        merged: Names of the model's nodes that passes took into this one.
        proto: The serialised ``NodeProto`` this node came from, for the host backend; None for traced nodes.
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Attribute] = field(default_factory=dict)
    name: str = ""
    domain: str = ""
    proto: bytes | None = None
    made_of: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()

    @property
    def origins(self) -> tuple[str, ...]:
        """Types of the model's operators that this one computes."""
        return self.made_of or (self.op_type,)

    def text(self, name: str, default: str) -> str:
        """Return a string attribute; models may hold it as bytes."""
        value = self.attrs.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def joined(self, *others: Node) -> tuple[str, ...]:
        """Return the ``made_of`` of an operator that computes this one and others."""
        return tuple(sorted({*self.origins, *(each for other in others for each in other.origins)}))

    def taking(self, other: Node) -> Node:
        """Return this node as one that computes another one too."""
        return self.with_(made_of=self.joined(other), merged=(*self.merged, other.name, *other.merged))

    def with_(self, **changes: Any) -> Node:
        """Return a copy with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True, eq=False)
class Graph:
    """A network for one input signature.

    Attributes:
        name: The network's name, for folders and messages.
        nodes: Operators in topological order.
        inputs: Names of the graph's inputs, in the model's order (initializers excluded).
        outputs: Names of the graph's outputs, in the model's order.
        types: The type of every value, constants included.
        constants: The values known when the network is built, weights among them.
        opset: The version of ONNX's operator set that ``nodes`` speak.
        updates: Outputs that replace inputs, as pairs of positions, an output's and an input's, of equal types: when
            the network has run, the caller's array of the input holds the output, and is what is returned.
        follows: The graph break behind it (``graph.breaks``), if it is a segment of a network; no pass keeps it.
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Array]
    opset: int = 21
    updates: tuple[tuple[int, int], ...] = ()
    follows: Any = None

    def with_(self, **changes: Any) -> Graph:
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    def consumers(self) -> dict[str, list[Node]]:
        """Return the nodes that read each value."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    readers.setdefault(name, []).append(node)
        return readers

    def producers(self) -> dict[str, Node]:
        """Return the node that assigns each value."""
        return {name: node for node in self.nodes for name in node.outputs if name}
