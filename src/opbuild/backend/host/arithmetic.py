"""ONNX's elementwise operators and the products and reductions that constants go through, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.dtypes import NARROW_FLOATS
from opbuild.errors import UnsupportedOperatorError
from opbuild.graph.elementwise import ONNX_OPERATORS, expression_of
from opbuild.graph.quantization import dequantize_linear, quantize_linear
from opbuild.graph.shape_rules import ONNX_DTYPES
from opbuild.graph.types import Array, Node
from opbuild.operations.evaluation import evaluate_expression
from opbuild.operations.expression import arg, from_json
from opbuild.operations.table import of_onnx


@implements(*ONNX_OPERATORS)
def _elementwise(node: Node, inputs: Any) -> Sequence[Array]:
    """Evaluate the expression that kernels compile.

    Activations with parameters have kernels for floats only. Integers, which some models give them, are computed in the
    longest float, which has every integer.
    """
    values, first = list(inputs), inputs[0]
    found = of_onnx(node.op_type, node.attrs)
    if found is not None and found[0].parameters and not np.issubdtype(first.dtype, np.floating):
        values[0] = first.astype(np.longdouble)
    dtypes = ["" if value is None else str(value.dtype) for value in values]
    expression = expression_of(node, [arg(index) for index in range(len(values))], dtypes)
    if expression is None:
        raise ValueError("its attributes have no meaning")
    result = evaluate_expression(expression, values)
    if node.op_type == "Clip":
        return (result.reshape(first.shape),)  # a bound may have more dimensions
    return (result.astype(first.dtype) if values[0] is not first else result,)


@implements("Elementwise", domain="opbuild")
def _fused(node: Node, inputs: Any) -> Sequence[Array]:
    """Evaluate the operators that a fused one is made of; it may not read all that its shape follows from."""
    if "shape" not in node.attrs:
        raise UnsupportedOperatorError(
            f"Elementwise node {node.name!r}: its shape is not known here", "give it a kernel"
        )
    found = evaluate_expression(from_json(list(node.attrs["expression"])), inputs)
    return (np.broadcast_to(found, node.attrs["shape"]),)


@implements("Det")
def _det(node: Node, inputs: Any) -> Sequence[Array]:
    return (np.linalg.det(inputs[0].astype(np.float64)).astype(inputs[0].dtype),)


@implements("MatMul")
def _matmul(node: Node, inputs: Any) -> Sequence[Array]:
    return (np.matmul(*map(_widened, inputs)).astype(inputs[0].dtype, copy=False),)


@implements("IntegerMatMul", domain="opbuild")
def _integer_matmul(node: Node, inputs: Any) -> Sequence[Array]:
    """Evaluate a product of bytes; float64 has every sum, and BLAS is ten times as fast as numpy's integers."""
    found = np.matmul(*(each.astype(np.float64) for each in inputs[:2]))
    return (found.astype(np.int64).astype(np.int32),)


@implements("Gemm")
def _gemm(node: Node, inputs: Any) -> Sequence[Array]:
    a, b = map(_widened, inputs[:2])
    found = np.matmul(a.T if node.attrs.get("transA", 0) else a, b.T if node.attrs.get("transB", 0) else b)
    found = found * found.dtype.type(node.attrs.get("alpha", 1.0))
    if len(inputs) > 2 and inputs[2] is not None:
        found = found + inputs[2] * found.dtype.type(node.attrs.get("beta", 1.0))
    return (found.astype(inputs[0].dtype, copy=False),)


def _widened(x: Array) -> Array:
    """Return an array of 16-bit floats in the type in which it is summed: the result is rounded once."""
    return x.astype(np.float32) if x.dtype.name in NARROW_FLOATS else x


@implements("DequantizeLinear", "QuantizeLinear")
def _quantization(node: Node, inputs: Any) -> Sequence[Array]:
    x, *parameters = (each for each in inputs if each is not None)
    number, dtypes = node.attrs.get("output_dtype", 0), [each.dtype.name for each in (x, *parameters)]
    given = ONNX_DTYPES[int(number)] if number else ""
    if node.op_type == "DequantizeLinear":
        expression = dequantize_linear(dtypes, given or dtypes[1])
    else:
        dtype = dtypes[2] if len(dtypes) > 2 else given or "uint8"
        expression = quantize_linear(dtypes, dtype, saturate=bool(node.attrs.get("saturate", 1)))
    return (evaluate_expression(expression, [x, *(_spread(each, x.shape, node) for each in parameters)]),)


def _spread(parameter: Array, shape: tuple[int, ...], node: Node) -> Array:
    """Return a scale or a zero point for each element: given for all, for an axis's, or for blocks of an axis's."""
    if parameter.size == 1:
        return parameter.reshape(())
    axis = int(node.attrs.get("axis", 1)) % len(shape)
    if parameter.ndim == 1:
        return parameter.reshape(-1, *(1,) * (len(shape) - axis - 1))
    size = int(node.attrs.get("block_size", 0)) or -(-shape[axis] // parameter.shape[axis])
    return parameter.take(np.arange(shape[axis]) // size, axis)


_GREATEST = np.float32(255)


@implements("DynamicQuantizeLinear")
def _dynamic_quantize(node: Node, inputs: Any) -> Sequence[Array]:
    """Quantise to uint8 by the range of the values and 0; the text leaves open the scale of zeros, here 1."""
    x = inputs[0]
    low, high = x.min(initial=0), x.max(initial=0)
    scale = (high - low) / _GREATEST if high > low else np.float32(1)
    zero = np.clip(np.rint(-low / scale), 0, _GREATEST)
    found = np.clip(np.rint(x / scale) + zero, 0, _GREATEST)
    return (found.astype(np.uint8), np.asarray(scale, np.float32), np.asarray(zero, np.uint8))[: len(node.outputs)]
