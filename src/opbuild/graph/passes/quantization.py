"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear written as elementwise expressions, which fuse as others.

Scales and zero points, one for all elements, one for each index of an axis or one for each block of an axis, become
operands that broadcast.
"""

from __future__ import annotations

import numpy as np

from opbuild.dtypes import UNSATURATED
from opbuild.graph.graph_builder import Value
from opbuild.graph.passes.rewriter import KeptError, NewGraph, PassBuilder, Rewrite, rewritten
from opbuild.graph.types import Array, Graph
from opbuild.operations.expression import Expression, arg, const

FLOAT = "float32"
"""The type in which everything is computed; narrower floats are widened first, as ONNX Runtime does."""


ROUNDER = 1.5 * 2.0**23
"""Adding it to a small float32 rounds that to the nearest whole number, of two to the even one."""


def limits(dtype: str) -> tuple[int, int]:
    """Return the least and the greatest number of an integer type, such as ``int8`` or ``uint4``."""
    bits = int(dtype.rpartition("int")[2])
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def wide(x: Expression, dtype: str) -> Expression:
    """Return a number of any type as float32."""
    return x if dtype == FLOAT else ("cast", FLOAT, x)


def saturated(x: Expression, dtype: str) -> Expression:
    """Return a float32 that is a whole number, or NaN, as the nearest number of an integer type."""
    low, high = (const(value) for value in limits(dtype))
    return ("cast", dtype, ("saturate", x, low, high))


def quantized(x: Expression, zero_point: Expression | None, dtype: str) -> Expression:
    """Return a float32 that was divided by the scale as a quantised number, an integer of at most 16 bits.

    The zero point is of the same type, None for 0.
    """
    rounded: Expression = ("round", x)
    return saturated(rounded if zero_point is None else ("add", rounded, ("cast", FLOAT, zero_point)), dtype)


def limited_and_rounded(x: Expression, low: Expression, high: Expression) -> Expression:
    """Return the float32 that is the nearest whole number between two, of NaN ``low``; they are those of 16 bits.

    Rounding what is so small is a sum and a difference, which have an instruction for any number of lanes.
    """
    rounder = const(ROUNDER)
    return ("sub", ("add", ("saturate", x, low, high), rounder), rounder)


def dequantized(x: Expression, zero_point: Expression | None, scale: Expression, dtype: str) -> Expression:
    """Return a quantised number, an integer or a float of at most 8 bits, as float32.

    The zero point is of the same type, None for 0; the scale is a float32.
    """
    if zero_point is not None and "float" in dtype:
        x, dtype = ("sub", wide(x, dtype), wide(zero_point, dtype)), FLOAT
    elif zero_point is not None:
        wanted = ("cast", "int32", x), ("cast", "int32", zero_point)
        x, dtype = ("sub", *((x, zero_point) if dtype == "int32" else wanted)), "int32"
    return ("mul", wide(x, dtype), scale)


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
    zero = "" if of.scope.is_zero(zero) else zero
    steps: Expression = ("div", wide(arg(0), kinds[0]), wide(arg(1), kinds[1]))
    if dtype in _INTEGERS:
        value = quantized(steps, arg(2) if zero else None, dtype)
    else:
        steps = ("add", steps, ("cast", FLOAT, arg(2))) if zero else steps
        beyond = dtype.startswith("float8") and not of.attr("saturate", 1)
        value = ("cast_as", dtype, UNSATURATED, steps) if beyond else ("cast", dtype, steps)
    _spread(of, (x, scale, zero), value)


def _dequantize(of: PassBuilder) -> None:
    x, scale, zero, *_ = *of.inputs, ""
    kinds = [of.types[name].dtype for name in (x, scale)]
    dtype = of.types[of.outputs[0]].dtype
    if kinds[0] not in (*_INTEGERS, *_SMALL_FLOATS, "int32") or not {kinds[1], dtype} <= {*_FLOATS}:
        raise KeptError
    zero = "" if of.scope.is_zero(zero) else zero
    value = dequantized(arg(0), arg(2) if zero else None, wide(arg(1), kinds[1]), kinds[0])
    _spread(of, (x, scale, zero), value if dtype == FLOAT else ("cast", dtype, value))


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


def _spread(of: PassBuilder, names: tuple[str, str, str], expression: Expression) -> None:
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
