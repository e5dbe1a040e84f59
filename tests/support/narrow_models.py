"""Networks of float32 as networks of 16 bits, as converters make them: every float32 becomes the other type."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from opbuild.dtypes import numpy_dtype

NUMBERS = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def in_sixteen_bits(model: onnx.ModelProto, dtype: str) -> onnx.ModelProto:
    """Return a copy of a model in which float32 is ``float16`` or ``bfloat16``: inputs, outputs, constants, Cast."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    kind, number = numpy_dtype(dtype), NUMBERS[dtype]
    tensors = list(model.graph.initializer)
    for node in model.graph.node:
        tensors += [each.t for each in node.attribute if each.type == onnx.AttributeProto.TENSOR]
        for each in node.attribute:
            if node.op_type == "Cast" and each.name == "to" and each.i == TensorProto.FLOAT:
                each.i = number
    for tensor in tensors:
        if tensor.data_type == TensorProto.FLOAT:
            with np.errstate(over="ignore"):
                value = numpy_helper.to_array(tensor).astype(kind)
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = number
    return model
