"""Shape rules of operators on quantised numbers, those of domain ``com.microsoft`` too."""

from __future__ import annotations

from opbuild.graph.shape_rules import Call, Types, broadcast, named_dtype, rule
from opbuild.graph.types import TensorType
from opbuild.operations.expression import dtype_of, from_json


@rule("QuantizeLinear")
def quantize(call: Call) -> Types:
    """The zero point's element type, ``output_dtype``, or uint8."""
    _parameters(call)
    if call.has(2):
        return (TensorType(call.dtype(2), call.shape(0)),)
    return (TensorType(named_dtype(call, call.attr("output_dtype", 0) or 2), call.shape(0)),)


@rule("DequantizeLinear")
def dequantize(call: Call) -> Types:
    """The scale's element type, or ``output_dtype``."""
    _parameters(call)
    chosen = call.attr("output_dtype", 0)
    return (TensorType(named_dtype(call, chosen) if chosen else call.dtype(1), call.shape(0)),)


@rule("DynamicQuantizeLinear")
def dynamic(call: Call) -> Types:
    """The quantised value, its scale and its zero point."""
    return (TensorType("uint8", call.shape(0)), TensorType(call.dtype(0), ()), TensorType("uint8", ()))


def _parameters(call: Call) -> None:
    """Check that a scale is one number, one for each index of an axis, or one for each block of an axis."""
    x, scale = call.shape(0), call.shape(1)
    if call.type(1).size == 1 and (not call.has(2) or call.type(2).size == 1):
        return  # ONNX Runtime's tools write [] for the one and [1] for the other
    call.expect(2, scale)
    axis = call.axis(int(call.attr("axis", 1)), len(x))
    if scale == x[axis : axis + 1]:
        return
    rest = [own for index, own in enumerate(scale) if index != axis]
    block = int(call.attr("block_size", 0))
    if len(scale) != len(x) or rest != [own for index, own in enumerate(x) if index != axis]:
        call.fail(f"the scale has shape {list(scale)}, which is none of axis {axis}")
    least = -(-x[axis] // block) if block else scale[axis]
    if scale[axis] != least or scale[axis] > x[axis]:
        call.fail(f"{scale[axis]} blocks of {block or 'any size'} do not cover the {x[axis]} elements of axis {axis}")


@rule("Elementwise", domain="opbuild")
def elementwise(call: Call) -> Types:
    """An expression of operands that broadcast together."""
    given = [item for item in call.types if item is not None]
    dtype = dtype_of(from_json(list(call.attr("expression", ()))), [item.dtype for item in given])
    return (TensorType(dtype, broadcast(call, [item.shape for item in given])),)
