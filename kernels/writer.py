"""Writes the structures of networks as ONNX, without weights: a constant has a shape, and one number everywhere."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

SMALL = 64
"""Elements up to which a constant is written out."""


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

    def input(self, name: str, shape: tuple[int | str, ...], dtype: int = FLOAT) -> str:
        """Add an input; return its name."""
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

    def weight(self, *shape: int, value: float = 0.01, dtype: str = "float32") -> str:
        """Return a constant of one number."""
        if math.prod(shape) <= SMALL:
            return self.numbers(np.full(shape, value), dtype)
        fill = numpy_helper.from_array(np.full(1, value, dtype))
        return self.add("ConstantOfShape", self.numbers(shape), value=fill)

    def mean(self, x: str, *axes: int, keep: bool = True) -> str:
        """Add a mean over axes, which are an input since operator set 18."""
        if self.opset < 18:
            return self.add("ReduceMean", x, axes=axes, keepdims=int(keep))
        return self.add("ReduceMean", x, self.numbers(axes), keepdims=int(keep))

    def model(self, *outputs: str) -> onnx.ModelProto:
        """Return the model with these outputs."""
        results = []
        for output in outputs:
            result = onnx.ValueInfoProto(name=output)
            result.type.tensor_type.elem_type = FLOAT
            results.append(result)
        graph = helper.make_graph(self.nodes, "network", self.inputs, results, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
