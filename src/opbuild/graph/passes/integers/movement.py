"""What moves or compares numbers between DequantizeLinear and QuantizeLinear, on bytes.

Quantising what was dequantised keeps the order of numbers, so it may come before a maximum as well as behind it, and it
looks at each number alone, so it may come before a movement. Where both have one scale it does nothing.
"""

from __future__ import annotations

from opbuild.graph.passes.integers.registry import BYTES, IntegerRewriter, Quantized, rewrites
from opbuild.graph.quantized import dequantized, quantized
from opbuild.graph.types import Node
from opbuild.operations.expression import arg

_LEAST = 1e-30

MOVEMENTS = ("Concat", "Flatten", "Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that move or compare elements: of their first input, Concat of all."""


def quantize_moved(to: IntegerRewriter, node: Node) -> bool:
    """Rewrite a QuantizeLinear of what only moves or compares what was dequantised, step by step from there."""
    x, scale, zero = (*node.inputs, "")[:3]
    kind = to.types[node.outputs[0]].dtype
    if kind not in BYTES or any(name and name not in to.constants for name in (scale, zero)):
        return False
    if to.types[scale].dtype != "float32" or not is_ordinary(to, scale) or not _moves(to, x):
        return False
    _moved(to, node, x, Quantized("", scale, zero, None), kind, node.outputs[0])
    return True


@rewrites("Gather")
def _gathered(to: IntegerRewriter, node: Node) -> bool:
    """Dequantise what is taken from a table, not the table: tables of embeddings stay bytes."""
    table = to.quantized(node.inputs[0])
    if table is None or table.axis is not None or table.value not in to.constants:
        return False
    taken = to.add(node, "Gather", (table.value, node.inputs[1]), **node.attrs)
    parameters = (table.scale, table.zero_point) if table.zero_point else (table.scale,)
    to.add(node, "DequantizeLinear", (taken, *parameters), node.outputs[0])
    return True


def _moves(to: IntegerRewriter, name: str) -> bool:
    """Return whether a value is moved from quantised ones, and nothing else reads what is between."""
    node = to.producers.get(name)
    if node is None or node.domain or node.op_type not in MOVEMENTS or any(node.outputs[1:]):
        return False
    if len(to.readers.get(name, ())) != 1 or name in to.outputs:
        return False
    return all(_is_quantized(to, each) or _moves(to, each) for each in _data(node))


def _is_quantized(to: IntegerRewriter, name: str) -> bool:
    found = to.quantized(name)
    return found is not None and found.axis is None and is_ordinary(to, found.scale)


def is_ordinary(to: IntegerRewriter, scale: str) -> bool:
    """Return whether a scale is one known number that keeps the order and with which no byte leaves the floats."""
    known = to.constants.get(scale)
    return known is not None and known.size == 1 and bool(_LEAST < known.reshape(-1)[0] < 1 / _LEAST)


def _data(node: Node) -> tuple[str, ...]:
    return node.inputs if node.op_type == "Concat" else node.inputs[:1]


def _moved(to: IntegerRewriter, node: Node, name: str, wanted: Quantized, kind: str, output: str = "") -> str:
    """Append what computes a value in bytes of a scale; return its name."""
    found = to.quantized(name)
    if found is not None:
        return _requantized(to, node, found, wanted, kind)
    source = to.producers[name]
    data = tuple(_moved(to, node, each, wanted, kind) for each in _data(source))
    return to.add(node, source.op_type, (*data, *source.inputs[len(data) :]), output, **source.attrs)


def _requantized(to: IntegerRewriter, node: Node, found: Quantized, wanted: Quantized, kind: str) -> str:
    """Return bytes in another scale; the same ones if it is no other."""
    dtype = to.types[found.value].dtype
    if dtype == kind and _same(to, found.scale, wanted.scale) and same_zero(to, found.zero_point, wanted.zero_point):
        return found.value
    inputs, zeros = [found.value, found.scale, wanted.scale], []
    for name in (found.zero_point, wanted.zero_point):
        zeros.append(None if to.is_zero(name) else arg(len(inputs)))
        inputs += [] if zeros[-1] is None else [name]
    numbers = (inputs[0], *(to.reshaped(node, name, ()) for name in inputs[1:]))
    value = ("div", dequantized(arg(0), zeros[0], arg(1), dtype), arg(2))
    return to.elementwise(node, numbers, quantized(value, zeros[1], kind))


def _same(to: IntegerRewriter, one: str, other: str) -> bool:
    known = one in to.constants and other in to.constants
    return one == other or (known and bool((to.constants[one] == to.constants[other]).all()))


def same_zero(to: IntegerRewriter, one: str, other: str) -> bool:
    """Return whether two zero points are known to be equal."""
    return (to.is_zero(one) and to.is_zero(other)) or (bool(one and other) and _same(to, one, other))
