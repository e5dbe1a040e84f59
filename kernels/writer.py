"""Writes the structures of networks as ONNX, without weights: a constant has a shape, and one number everywhere.

An extent may be a name: then the input that has it is declared open there, and shapes follow from that input's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
UINT8, INT8, INT32 = TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32

SMALL = 64
"""Elements up to which a constant is written out."""

Extent = int | str
"""A number, or the name of an extent that is open."""


class Writer:
    """A graph that is being written. Values are named by what returns them.

    Args:
        opset: The operator set.
    """

    def __init__(self, opset: int = 17) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._places: dict[str, tuple[str, int]] = {}
        self._extents: dict[str, str] = {}

    def input(self, name: str, shape: tuple[Extent, ...], dtype: int = FLOAT) -> str:
        """Add an input; return its name."""
        for axis, extent in enumerate(shape):
            if isinstance(extent, str):
                self._places[extent] = name, axis
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def add(self, op_type: str, *inputs: str, **attributes: object) -> str:
        """Add a node; return its output."""
        return self.several(1, op_type, *inputs, **attributes)[0]

    def several(self, count: int, op_type: str, *inputs: str, **attributes: object) -> list[str]:
        """Add a node; return its outputs."""
        name = f"{op_type.lower()}_{len(self.nodes)}"
        outputs = [name] if count == 1 else [f"{name}_{number}" for number in range(count)]
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name, **attributes))
        return outputs

    def numbers(self, values: object, dtype: str = "int64") -> str:
        """Return a constant that is written out."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def number(self, value: float) -> str:
        """Return a float32 without dimensions."""
        return self.numbers(value, "float32")

    def extent(self, extent: Extent) -> str:
        """Return a list of one extent."""
        if isinstance(extent, int):
            return self.numbers([extent])
        if extent not in self._extents:
            name, axis = self._places[extent]
            self._extents[extent] = self.add("Gather", self.add("Shape", name), self.numbers([axis]), axis=0)
        return self._extents[extent]

    def shape(self, *extents: Extent) -> str:
        """Return a list of extents: a constant if none is open."""
        known = [each for each in extents if isinstance(each, int)]
        return self.numbers(known) if len(known) == len(extents) else self.add(
            "Concat", *map(self.extent, extents), axis=0
        )  # fmt: skip

    def total(self, one: Extent, other: Extent) -> Extent:
        """Return the sum of two extents."""
        if isinstance(one, int) and isinstance(other, int):
            return one + other
        name = f"{one} + {other}"
        if name not in self._extents:
            self._extents[name] = self.add("Add", self.extent(one), self.extent(other))
        return name

    def places(self, first: Extent, last: Extent, *axes: int) -> str:
        """Return consecutive numbers from one up to another one, with axes of one element."""
        if isinstance(first, int) and isinstance(last, int):
            return self.numbers(np.expand_dims(np.arange(first, last), axes))
        ends = (self.add("Squeeze", self.extent(each), self.numbers([0])) for each in (first, last))
        return self.add("Unsqueeze", self.add("Range", *ends, self.numbers(1)), self.numbers(axes))

    def part(self, shape: tuple[int, ...], axis: int, first: Extent, last: Extent, **options: Any) -> str:
        """Return as much along an axis of a constant of this shape as there is between two places; see ``weight``."""
        if isinstance(first, int) and isinstance(last, int):
            return self.weight(*shape[:axis], last - first, *shape[axis + 1 :], **options)
        bounds = self.extent(first), self.extent(last), self.numbers([axis])
        return self.add("Slice", self.weight(*shape, **options), *bounds)

    def weight(self, *shape: Extent, value: float = 0.01, dtype: str = "float32") -> str:
        """Return a constant of one number."""
        known = [each for each in shape if isinstance(each, int)]
        if len(known) == len(shape) and math.prod(known) <= SMALL:
            return self.numbers(np.full(known, value), dtype)
        fill = numpy_helper.from_array(np.full(1, value, dtype))
        return self.add("ConstantOfShape", self.shape(*shape), value=fill)

    def mean(self, x: str, *axes: int, keep: bool = True) -> str:
        """Add a mean over axes, which are an input since operator set 18."""
        if self.opset < 18:
            return self.add("ReduceMean", x, axes=axes, keepdims=int(keep))
        return self.add("ReduceMean", x, self.numbers(axes), keepdims=int(keep))

    def model(self, *outputs: str, dtype: int = FLOAT) -> onnx.ModelProto:
        """Return the model with these outputs, all of one type."""
        results = []
        for output in outputs:
            result = onnx.ValueInfoProto(name=output)
            result.type.tensor_type.elem_type = dtype
            results.append(result)
        graph = helper.make_graph(self.nodes, "network", self.inputs, results, self.constants)
        others = sorted({node.domain for node in self.nodes if node.domain})
        sets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(domain, 1) for domain in others)]
        return helper.make_model(graph, opset_imports=sets, ir_version=8)
