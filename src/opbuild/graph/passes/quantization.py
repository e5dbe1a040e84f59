"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear written as elementwise expressions, which fuse as others.

Scales and zero points, one for all elements, one for each index of an axis or one for each block of an axis, become
operands that broadcast.
"""

from __future__ import annotations

import numpy as np

from opbuild.graph.graph_builder import Value
from opbuild.graph.passes.rewriter import KeptError, NewGraph, PassBuilder, Rewrite, rewritten
from opbuild.graph.quantization import FLOAT, dequantize_linear, quantize_linear, quantized
from opbuild.graph.types import Array, Graph
from opbuild.operations.expression import Expression, arg, const

_INTEGERS = ("uint8", "int8", "uint16", "int16", "int4", "uint4", "int2", "uint2")
_SMALL_FLOATS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn")
_FLOATS = ("float32", "float16", "bfloat16")


def spell_out_quantization(graph: Graph) -> Graph:
    """Return the graph with quantisation written as elementwise expressions, where the types have kernels."""
    return rewritten(NewGraph(graph), graph, lambda node: None if node.domain else REWRITES.get(node.op_type))


def _quantize(of: PassBuilder) -> None:
    x, scale, zero, *_ = *of.inputs, ""
    kinds = [of.types[name].dtype for name in (x, scale)]
    dtype = of.types[of.outputs[0]].dtype
    if kinds[0] not in (*_FLOATS, "int32") or kinds[1] not in _FLOATS or dtype not in (*_INTEGERS, *_SMALL_FLOATS):
        raise KeptError
    names = (x, scale) if of.scope.is_zero(zero) else (x, scale, zero)
    kinds = [of.types[name].dtype for name in names if name]
    _spread(of, names, quantize_linear(kinds, dtype, saturate=bool(of.attr("saturate", 1))))


def _dequantize(of: PassBuilder) -> None:
    x, scale, zero, *_ = *of.inputs, ""
    kinds = [of.types[name].dtype for name in (x, scale)]
    dtype = of.types[of.outputs[0]].dtype
    if kinds[0] not in (*_INTEGERS, *_SMALL_FLOATS, "int32") or not {kinds[1], dtype} <= {*_FLOATS}:
        raise KeptError
    names = (x, scale) if of.scope.is_zero(zero) else (x, scale, zero)
    _spread(of, names, dequantize_linear([of.types[name].dtype for name in names if name], dtype))


def _dynamic(of: PassBuilder) -> None:
    """Quantise to uint8 by the range of the values and 0; the text leaves open the scale of zeros: 1."""
    x = of.input(0)
    if of.types[x].dtype != FLOAT or not of.types[x].size:
        raise KeptError
    output, scale, zero = (name or of.scope.fresh(f"{of.name}/unused") for name in of.outputs)
    nothing = const(0.0)
    low, high = (("where", (test, arg(i), nothing), arg(i), nothing) for i, test in enumerate(("less", "greater")))
    ends = tuple(_extreme_element(of, x, kind) for kind in ("ReduceMin", "ReduceMax"))
    step = ("where", ("equal", low, high), const(1.0), ("div", ("sub", high, low), const(255.0)))
    of.elementwise(ends, step, scale)
    of.elementwise((ends[0], scale), quantized(("div", ("neg", low), arg(1)), None, "uint8"), zero)
    of.elementwise((x, scale, zero), quantized(("div", arg(0), arg(1)), arg(2), "uint8"), output)


def _extreme_element(of: PassBuilder, x: str, reduction: str) -> Value:
    """Return the least or the greatest element, found row by row first, which is divided among tasks."""
    if len(of.types[x].shape) > 1:
        last = of.constant(np.array([-1], np.int64))
        x = of(reduction, x, last, keepdims=0)
    return of(reduction, x, keepdims=0)


REWRITES: dict[str, Rewrite] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
}


def _spread(of: PassBuilder, names: tuple[str, ...], expression: Expression) -> None:
    """Append the elementwise node of a value, its scale and its zero point ("": none)."""
    x, *parts = (name for name in names if name)
    scale, shape, output = of.types[names[1]].shape, of.types[x].shape, of.outputs[0]
    axis = int(of.attr("axis", 1)) % max(len(shape), 1)
    if of.types[names[1]].size == 1 or len(scale) == 1:
        each = () if of.types[names[1]].size == 1 else (*scale, *(1,) * (len(shape) - axis - 1))
        of.elementwise((x, *(of.reshaped(part, each) for part in parts)), expression, output)
    elif shape[axis] % scale[axis]:
        size = int(of.attr("block_size", 0)) or -(-shape[axis] // scale[axis])
        places = np.arange(shape[axis]) // size
        of.elementwise((x, *(_repeated(of, part, axis, places) for part in parts)), expression, output)
    else:
        blocks = (*shape[:axis], scale[axis], shape[axis] // scale[axis], *shape[axis + 1 :])
        each = (*scale[: axis + 1], 1, *scale[axis + 1 :])
        inputs = (of.reshaped(x, blocks), *(of.reshaped(part, each) for part in parts))
        inside = of.elementwise(inputs, expression)
        of.reshaped(inside, shape, output)


def _repeated(of: PassBuilder, name: str, axis: int, places: Array) -> Value:
    """Return one value for each element of an axis from one for each block; ``places`` has each element's block."""
    if name in of.constants:
        return of.constant(of.constants[name].take(places, axis), name=f"{name}/repeated")
    return of("Gather", name, of.constant(places), axis=axis)
