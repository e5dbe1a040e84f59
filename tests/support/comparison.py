"""Comparing a network's outputs with ONNX Runtime's and with stored ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented  # noqa: A004  its name there

from opbuild.target.host import host_flags

Array = npt.NDArray[Any]


def relative_error(got: Array, expected: Array) -> float:
    """Return the largest difference relative to the largest expected magnitude."""
    return float(np.abs(got.astype("f8") - expected).max() / np.abs(expected).max())


SATURATES = not host_flags().intersection(("avx512_vnni", "avx_vnni", "asimddp"))
"""Whether ONNX Runtime's sums of two products of uint8 and int8 saturate here: opbuild's never do."""

EXACT_BYTES = "session.x64quantprecision"
"""The entry by which its optimizer writes such products so that they do not."""


INTEGER_PRODUCTS = ("MatMulInteger", "ConvInteger")
"""Operators whose operands may be moved from int8 to uint8, each by itself."""


def exact_weights(weights: Array) -> Array:
    """Return weights that ONNX Runtime multiplies exactly without its optimizer: of seven bits where they must be."""
    return weights // 2 if SATURATES and weights.dtype == np.int8 else weights


def onnxruntime_outputs(
    model: onnx.ModelProto, feeds: Mapping[str, Array], *, optimized: bool = True
) -> tuple[Array, ...]:
    """Return ONNX Runtime's outputs; without its optimizations it computes node by node, as the model says."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # its other threads would look for work, on the cores of other tests
    if not optimized:
        model = with_unsigned_products(model)
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    elif SATURATES:
        options.add_session_config_entry(EXACT_BYTES, "1")
    content, providers = model.SerializeToString(), ["CPUExecutionProvider"]
    try:
        session = onnxruntime.InferenceSession(content, options, providers=providers)
    except NotImplemented:  # it has not every product of the types that it writes then
        options.add_session_config_entry(EXACT_BYTES, "0")
        session = onnxruntime.InferenceSession(content, options, providers=providers)
    return tuple(np.asarray(output) for output in session.run(None, dict(feeds)))


def with_unsigned_products(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose MatMulInteger and ConvInteger multiply uint8 by uint8, which saturates on no processor.

    What is int8 is moved by 128 together with its zero point, so the products are the same numbers.
    """
    if not any(node.op_type in INTEGER_PRODUCTS for node in model.graph.node):
        return model
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {each.name: each.type.tensor_type.elem_type for each in (*inferred.input, *inferred.value_info)}
    types |= {each.name: each.data_type for each in inferred.initializer}
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    for node in model.graph.node:
        is_product = node.op_type in INTEGER_PRODUCTS
        changed.graph.node.append(_unsigned(node, types, changed.graph) if is_product else node)
    return changed


def _unsigned(node: onnx.NodeProto, types: Mapping[str, int], graph: onnx.GraphProto) -> onnx.NodeProto:
    """Return a product of what a graph then moves by 128 where it is int8."""
    operands, zero_points = node.input[:2], [*node.input[2:], "", ""][:2]
    for place, operand in enumerate(operands):
        if types.get(operand) == onnx.TensorProto.INT8:
            operands[place] = _moved(operand, graph)
            zero_points[place] = _moved(zero_points[place], graph)
    unsigned = onnx.NodeProto()
    unsigned.CopyFrom(node)
    unsigned.input[:] = [*operands, *zero_points]
    return unsigned


def _moved(name: str, graph: onnx.GraphProto) -> str:
    """Return the name of a value of int8 plus 128, as uint8; of 128 for none."""
    prefix = f"unsigned_{len(graph.node)}"
    whole, moved, unsigned, by = (f"{prefix}_{part}" for part in ("whole", "moved", "unsigned", "by"))
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(128, np.int32), by))
    if name:
        graph.node.append(onnx.helper.make_node("Cast", [name], [whole], to=onnx.TensorProto.INT32))
        graph.node.append(onnx.helper.make_node("Add", [whole, by], [moved]))
    graph.node.append(onnx.helper.make_node("Cast", [moved if name else by], [unsigned], to=onnx.TensorProto.UINT8))
    return unsigned


def onnxruntime_output(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Array:
    """Return ONNX Runtime's first output."""
    return onnxruntime_outputs(model, feeds)[0]
