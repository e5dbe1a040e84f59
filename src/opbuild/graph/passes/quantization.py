"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear written as elementwise expressions, which fuse as others.

Scales and zero points, one for all elements, one for each index of an axis or one for each block of an axis, become
operands that broadcast.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from opbuild.dtypes import UNSATURATED
from opbuild.graph.passes.blame import blaming
from opbuild.graph.passes.rewriter import Rewriter
from opbuild.graph.quantized import FLOAT, dequantized, quantized, wide
from opbuild.graph.types import Array, Graph, Node
from opbuild.operations.expression import Expression, arg, const

_INTEGERS = ("uint8", "int8", "uint16", "int16", "int4", "uint4", "int2", "uint2")
_SMALL_FLOATS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn")
_FLOATS = ("float32", "float16", "bfloat16")


def spell_out_quantization(graph: Graph) -> Graph:
    """Return the graph with quantisation written as elementwise expressions, where the types have kernels."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        rewrite = None if node.domain else REWRITES.get(node.op_type)
        with blaming(node):
            if rewrite is None or not rewrite(rewriter, node):
                rewriter.nodes.append(node)
    return rewriter.graph(graph)


def _quantize(to: Rewriter, node: Node) -> bool:
    x, scale, zero, *_ = *node.inputs, ""
    kinds = [to.types[name].dtype for name in (x, scale)]
    dtype = to.types[node.outputs[0]].dtype
    if kinds[0] not in (*_FLOATS, "int32") or kinds[1] not in _FLOATS or dtype not in (*_INTEGERS, *_SMALL_FLOATS):
        return False
    zero = "" if _is_zero(to, zero) else zero
    steps: Expression = ("div", wide(arg(0), kinds[0]), wide(arg(1), kinds[1]))
    if dtype in _INTEGERS:
        value = quantized(steps, arg(2) if zero else None, dtype)
    else:
        steps = ("add", steps, ("cast", FLOAT, arg(2))) if zero else steps
        beyond = dtype.startswith("float8") and not node.attrs.get("saturate", 1)
        value = ("cast_as", dtype, UNSATURATED, steps) if beyond else ("cast", dtype, steps)
    _spread(to, node, (x, scale, zero), value)
    return True


def _dequantize(to: Rewriter, node: Node) -> bool:
    x, scale, zero, *_ = *node.inputs, ""
    kinds = [to.types[name].dtype for name in (x, scale)]
    dtype = to.types[node.outputs[0]].dtype
    if kinds[0] not in (*_INTEGERS, *_SMALL_FLOATS, "int32") or not {kinds[1], dtype} <= {*_FLOATS}:
        return False
    zero = "" if _is_zero(to, zero) else zero
    value = dequantized(arg(0), arg(2) if zero else None, wide(arg(1), kinds[1]), kinds[0])
    _spread(to, node, (x, scale, zero), value if dtype == FLOAT else ("cast", dtype, value))
    return True


def _dynamic(to: Rewriter, node: Node) -> bool:
    """Quantise to uint8 by the range of the values and 0; the text leaves open the scale of zeros: 1."""
    x = node.inputs[0]
    if to.types[x].dtype != FLOAT or not to.types[x].size:
        return False
    output, scale, zero = (name or to.fresh(f"{node.name}/unused") for name in node.outputs)
    nothing = const(0.0)
    low, high = (("where", (test, arg(i), nothing), arg(i), nothing) for i, test in enumerate(("less", "greater")))
    ends = tuple(_whole(to, node, x, kind) for kind in ("ReduceMin", "ReduceMax"))
    step = ("where", ("equal", low, high), const(1.0), ("div", ("sub", high, low), const(255.0)))
    _append(to, node, ends, step, scale)
    _append(to, node, (ends[0], scale), quantized(("div", ("neg", low), arg(1)), None, "uint8"), zero)
    _append(to, node, (x, scale, zero), quantized(("div", arg(0), arg(1)), arg(2), "uint8"), output)
    return True


def _whole(to: Rewriter, node: Node, x: str, reduction: str) -> str:
    """Return the least or the greatest element, found row by row first, which is divided among tasks."""
    if len(to.types[x].shape) > 1:
        last = to.constant(f"{node.name}/axis", np.array([-1], np.int64))
        x = to.add(node, reduction, (x, last), keepdims=0)
    return to.add(node, reduction, (x,), keepdims=0)


REWRITES: dict[str, Callable[[Rewriter, Node], bool]] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
}
"""Each returns whether it rewrote a node."""


def _is_zero(to: Rewriter, name: str) -> bool:
    """Return whether a zero point is known to be 0 everywhere."""
    return bool(name) and name in to.constants and not to.constants[name].astype(np.float32).any()


def _spread(to: Rewriter, node: Node, names: tuple[str, str, str], expression: Expression) -> None:
    """Append the elementwise node of a value, its scale and its zero point ("": none)."""
    x, *parts = (name for name in names if name)
    scale, shape, output = to.types[names[1]].shape, to.types[x].shape, node.outputs[0]
    if to.types[names[1]].size == 1:
        _append(to, node, (x, *(to.reshaped(node, part, ()) for part in parts)), expression, output)
        return
    axis = int(node.attrs.get("axis", 1)) % len(shape)
    if len(scale) == 1:
        each = (*scale, *(1,) * (len(shape) - axis - 1))
        _append(to, node, (x, *(to.reshaped(node, part, each) for part in parts)), expression, output)
    elif shape[axis] % scale[axis]:
        size = int(node.attrs.get("block_size", 0)) or -(-shape[axis] // scale[axis])
        places = np.arange(shape[axis]) // size
        _append(to, node, (x, *(_repeated(to, node, part, axis, places) for part in parts)), expression, output)
    else:
        blocks = (*shape[:axis], scale[axis], shape[axis] // scale[axis], *shape[axis + 1 :])
        each = (*scale[: axis + 1], 1, *scale[axis + 1 :])
        inputs = (to.reshaped(node, x, blocks), *(to.reshaped(node, part, each) for part in parts))
        inside = _append(to, node, inputs, expression)
        to.reshaped(node, inside, shape, output)


def _append(to: Rewriter, node: Node, inputs: tuple[str, ...], expression: Expression, output: str = "") -> str:
    return to.add(node, "Elementwise", inputs, output, expression=expression, domain="opbuild")


def _repeated(to: Rewriter, node: Node, name: str, axis: int, places: Array) -> str:
    """Return one value for each element of an axis from one for each block; ``places`` has each element's block."""
    if name in to.constants:
        return to.constant(f"{name}/repeated", to.constants[name].take(places, axis))
    return to.add(node, "Gather", (name, to.constant(f"{node.name}/blocks", places)), axis=axis)
