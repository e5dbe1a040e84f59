"""What moves or compares numbers between DequantizeLinear and QuantizeLinear, on bytes.

Quantising what was dequantised keeps the order of numbers, so it may come before a maximum as well as behind it, and it
looks at each number alone, so it may come before a movement. Where both have one scale it does nothing.
"""

from __future__ import annotations

from opbuild.graph.passes.integers.registry import BYTES, IntegerBuilder, IntegerGraph, Quantized, rewrites
from opbuild.graph.passes.rewriter import KeptError
from opbuild.graph.quantized import dequantized, quantized
from opbuild.graph.types import Node
from opbuild.operations.expression import arg

_LEAST = 1e-30

MOVEMENTS = ("Concat", "Flatten", "Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that move or compare elements: of their first input, Concat of all."""


def quantize_moved(of: IntegerBuilder) -> None:
    """Rewrite a QuantizeLinear of what only moves or compares what was dequantised, step by step from there."""
    x, scale, zero = (*of.inputs, "")[:3]
    kind = of.types[of.outputs[0]].dtype
    if kind not in BYTES or any(name and name not in of.constants for name in (scale, zero)):
        raise KeptError
    if of.types[scale].dtype != "float32" or not is_ordinary(of.scope, scale) or not _moves(of.scope, x):
        raise KeptError
    _moved(of, x, Quantized("", scale, zero, None), kind, of.outputs[0])


@rewrites("Gather")
def _gathered(of: IntegerBuilder) -> None:
    """Dequantise what is taken from a table, not the table: tables of embeddings stay bytes."""
    table = of.scope.quantized(of.input(0))
    if table is None or table.axis is not None or table.value not in of.constants:
        raise KeptError
    taken = of("Gather", table.value, of.input(1), **of.node.attrs)
    parameters = (table.scale, table.zero_point) if table.zero_point else (table.scale,)
    of("DequantizeLinear", taken, *parameters, output=of.outputs[0])


def _moves(to: IntegerGraph, name: str) -> bool:
    """Return whether a value is moved from quantised ones, and nothing else reads what is between."""
    node = to.producers.get(name)
    if node is None or node.domain or node.op_type not in MOVEMENTS or any(node.outputs[1:]):
        return False
    if len(to.readers.get(name, ())) != 1 or name in to.outputs:
        return False
    return all(_is_quantized(to, each) or _moves(to, each) for each in _data(node))


def _is_quantized(to: IntegerGraph, name: str) -> bool:
    found = to.quantized(name)
    return found is not None and found.axis is None and is_ordinary(to, found.scale)


def is_ordinary(to: IntegerGraph, scale: str) -> bool:
    """Return whether a scale is one known number that keeps the order and with which no byte leaves the floats."""
    known = to.constants.get(scale)
    return known is not None and known.size == 1 and bool(_LEAST < known.reshape(-1)[0] < 1 / _LEAST)


def _data(node: Node) -> tuple[str, ...]:
    return node.inputs if node.op_type == "Concat" else node.inputs[:1]


def _moved(of: IntegerBuilder, name: str, wanted: Quantized, kind: str, output: str = "") -> str:
    """Append what computes a value in bytes of a scale; return its name."""
    found = of.scope.quantized(name)
    if found is not None:
        return _requantized(of, found, wanted, kind)
    source = of.scope.producers[name]
    data = tuple(_moved(of, each, wanted, kind) for each in _data(source))
    return of(source.op_type, *data, *source.inputs[len(data) :], output=output, **source.attrs)


def _requantized(of: IntegerBuilder, found: Quantized, wanted: Quantized, kind: str) -> str:
    """Return bytes in another scale; the same ones if it is no other."""
    dtype = of.types[found.value].dtype
    if (
        dtype == kind
        and _same(of.scope, found.scale, wanted.scale)
        and same_zero(of.scope, found.zero_point, wanted.zero_point)
    ):
        return found.value
    inputs, zeros = [found.value, found.scale, wanted.scale], []
    for name in (found.zero_point, wanted.zero_point):
        zeros.append(None if of.scope.is_zero(name) else arg(len(inputs)))
        inputs += [] if zeros[-1] is None else [name]
    numbers = (inputs[0], *(of.reshaped(name, ()) for name in inputs[1:]))
    value = ("div", dequantized(arg(0), zeros[0], arg(1), dtype), arg(2))
    return of.elementwise(numbers, quantized(value, zeros[1], kind))


def _same(to: IntegerGraph, one: str, other: str) -> bool:
    known = one in to.constants and other in to.constants
    return one == other or (known and bool((to.constants[one] == to.constants[other]).all()))


def same_zero(to: IntegerGraph, one: str, other: str) -> bool:
    """Return whether two zero points are known to be equal."""
    return (to.is_zero(one) and to.is_zero(other)) or (bool(one and other) and _same(to, one, other))
