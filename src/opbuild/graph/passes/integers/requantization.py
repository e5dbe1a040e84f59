"""QuantizeLinear of results on quantised numbers: of a convolution's sums, of added values, of moved ones.

None of these divides by the scale of the result, which would take as long as ten other instructions: the scales of what
comes in are divided by it when the network is built. So a convolution is computed as QLinearConv has it, and a sum as
ONNX Runtime's QLinearAdd.

Quantising what was dequantised keeps the order of numbers, so it may come before a maximum as well as behind it, and it
looks at each number alone, so it may come before a movement. Where both have one scale it does nothing.
"""

from __future__ import annotations

import numpy as np

from opbuild.graph.graph_builder import Value
from opbuild.graph.passes.integers import BYTES, MICROSOFT, IntegerBuilder, IntegerGraph, Quantized, rewrites
from opbuild.graph.passes.rewriter import KeptError
from opbuild.graph.quantization import FLOAT, dequantized, limited_and_rounded, limits, quantized, wide
from opbuild.graph.types import Node
from opbuild.operations.expression import Expression, arg, substitute

_LEAST = 1e-30

MOVEMENTS = ("Concat", "Flatten", "Identity", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that move or compare elements: of their first input, Concat of all."""


def quantize_moved(of: IntegerBuilder) -> None:
    """Rewrite a QuantizeLinear of mere movements or comparisons of dequantised values, step by step from there."""
    x, scale, zero = (*of.inputs, "")[:3]
    kind = of.types[of.outputs[0]].dtype
    if kind not in BYTES or any(name and name not in of.constants for name in (scale, zero)):
        raise KeptError
    if of.types[scale].dtype != "float32" or not is_ordinary(of.scope, scale) or not _moves(of.scope, x):
        raise KeptError
    _in_bytes(of, x, Quantized("", scale, zero, None), kind, of.outputs[0])


@rewrites("Gather")
def _gathered(of: IntegerBuilder) -> None:
    """Dequantise the rows taken from a table, not the table: tables of embeddings stay bytes."""
    table = of.scope.quantized(of.input(0))
    if table is None or table.axis is not None or table.value not in of.constants:
        raise KeptError
    taken = of("Gather", table.value, of.input(1), **of.node.attrs)
    parameters = (table.scale, table.zero_point) if table.zero_point else (table.scale,)
    of("DequantizeLinear", taken, *parameters, output=of.outputs[0])


def _moves(to: IntegerGraph, name: str) -> bool:
    """Return whether a value is moved from quantised ones, and nothing else reads the values between."""
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


def _in_bytes(of: IntegerBuilder, name: str, wanted: Quantized, kind: str, output: str = "") -> str:
    """Append the computation of a value in bytes of a scale; return its name."""
    found = of.scope.quantized(name)
    if found is not None:
        return _requantized(of, found, wanted, kind)
    source = of.scope.producers[name]
    data = tuple(_in_bytes(of, each, wanted, kind) for each in _data(source))
    return of(source.op_type, *data, *source.inputs[len(data) :], output=output, **source.attrs)


def _requantized(of: IntegerBuilder, found: Quantized, wanted: Quantized, kind: str) -> str:
    """Return bytes in another scale; the same ones if it is no other."""
    dtype = of.types[found.value].dtype
    if (
        dtype == kind
        and _is_same(of.scope, found.scale, wanted.scale)
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


def _is_same(to: IntegerGraph, one: str, other: str) -> bool:
    known = one in to.constants and other in to.constants
    return one == other or (known and bool((to.constants[one] == to.constants[other]).all()))


def same_zero(to: IntegerGraph, one: str, other: str) -> bool:
    """Return whether two zero points are known to be equal."""
    return (to.is_zero(one) and to.is_zero(other)) or (bool(one and other) and _is_same(to, one, other))


Bounds = list[tuple[str, str]]
"""By what a value is limited, in order: the operations, and the names of their bounds."""


@rewrites("QuantizeLinear")
def _quantize(of: IntegerBuilder) -> None:
    """Quantise the result of a convolution or a sum, perhaps after Relu or Clip, or of a movement of bytes."""
    x, scale, zero = (*of.inputs, "")[:3]
    if of.types[of.outputs[0]].dtype not in BYTES or of.types[scale].size != 1 or of.types[scale].dtype != FLOAT:
        raise KeptError
    bounds, name = _bounds(of.scope, x)
    if bounds is None or (bounds and not is_ordinary(of.scope, scale)):  # a negative one turns the limits over
        quantize_moved(of)
        return
    if (name, "sums") in of.scope.derived:
        step = of.reshaped(scale, ())
        inputs = [of.scope.derived[name, "sums"], of("Div", of.scope.derived[name, "factor"], step)]
        _finish(of, inputs, ("mul", ("cast", FLOAT, arg(0)), arg(1)), bounds, (scale, zero))
        return
    operands = _added(of.scope, x, name)
    if operands is None or not is_ordinary(of.scope, scale):
        quantize_moved(of)
        return
    quantize_sum(of, operands, bounds, (scale, zero))


def quantize_sum(of: IntegerBuilder, operands: tuple[Quantized, ...], bounds: Bounds, result: tuple[str, str]) -> None:
    """Append the sum of quantised values, of one scale each, as bytes with the result's: the node's output."""
    step, inputs, terms = of.reshaped(result[0], ()), list[str](), list[Expression]()
    last = next(
        (each for made in reversed(of.scope.nodes) for each in operands if each.value in made.outputs), operands[0]
    )
    for each in operands:
        # The sums of one product can become the operands' only; those of another are four times the bytes.
        made = _unrounded_value(of.scope, each) if each is last else None
        names, steps = made or _from_bytes(of, each)
        ratio = of("Div", of.reshaped(each.scale, ()), step)
        terms.append(("mul", _renumbered(steps, len(inputs)), arg(len(inputs) + len(names))))
        inputs += [*names, ratio]
    _finish(of, inputs, ("add", *terms), bounds, result)


def _finish(of: IntegerBuilder, inputs: list[str], value: Expression, bounds: Bounds, result: tuple[str, str]) -> None:
    """Append a number counted in steps of the result as bytes: the node's output."""
    (scale, zero), kind = result, of.types[of.outputs[0]].dtype
    step, place = of.reshaped(scale, ()), None
    for operation, bound in bounds:
        if not _is_below(of.scope, operation, bound, zero, kind):
            value = (operation, value, arg(len(inputs)))
            inputs.append(of("Div", bound, step))
    if not of.scope.is_zero(zero):
        place = arg(len(inputs))
        inputs.append(of.reshaped(zero, ()))
    of.elementwise(tuple(inputs), quantized(value, place, kind), of.outputs[0])


def _is_below(to: IntegerGraph, operation: str, bound: str, zero: str, kind: str) -> bool:
    """Return whether quantising limits no less by itself: Relu in front of bytes whose least number stands for 0."""
    least = limits(kind)[0]
    known = to.constants.get(zero) if zero else None
    is_least = to.is_zero(zero) if least == 0 else known is not None and bool((known == least).all())
    return operation == "max" and is_least and bool((to.constants[bound] <= 0).all())


def _bounds(to: IntegerGraph, name: str) -> tuple[Bounds | None, str]:
    """Return the bounds of a value, None if they are computed, and the value within them."""
    node = to.producers.get(name)
    if node is None or node.domain or node.op_type not in ("Relu", "Clip"):
        return [], name
    found: Bounds = []
    if node.op_type == "Relu":
        found.append(("max", to.constant(np.zeros((), np.float32), f"{node.name}/zero")))
    for operation, bound in zip(("max", "min"), (*node.inputs[1:], "", "")[:2], strict=True):
        if bound and bound not in to.constants:
            return None, name
        if bound:
            found.append((operation, to.constant(to.constants[bound].reshape(()), f"{bound}/number")))
    before, source = _bounds(to, node.inputs[0])
    return (None if before is None else [*before, *found]), source


def _added(to: IntegerGraph, last: str, name: str) -> tuple[Quantized, ...] | None:
    """Return the quantised values whose sum ``name`` is, if nothing else reads it nor a limited form of it."""
    node = to.producers.get(name)
    if node is None or node.domain or node.op_type not in ("Add", "Sum"):
        return None
    if any(len(to.readers.get(each, ())) != 1 or each in to.outputs for each in {name, last}):
        return None
    found = tuple(each for each in map(to.quantized, node.inputs) if each is not None)
    is_served = len(found) == len(node.inputs) == 2 and all(
        each.axis is None and is_ordinary(to, each.scale) for each in found
    )
    return found if is_served else None


def _from_bytes(of: IntegerBuilder, value: Quantized) -> tuple[list[str], Expression]:
    """Return a quantised value less its zero point as a float32: operands and an expression over them."""
    if of.scope.is_zero(value.zero_point):
        return [value.value], wide(arg(0), of.types[value.value].dtype)
    less: Expression = ("sub", ("cast", "int32", arg(0)), ("cast", "int32", arg(1)))
    return [value.value, of.reshaped(value.zero_point, ())], ("cast", FLOAT, less)


def _unrounded_value(to: IntegerGraph, value: Quantized) -> tuple[list[str], Expression] | None:
    """Return the same of a value rounded and limited here and read by nothing else: no bytes are made in between."""
    node = to.producers.get(value.value)
    if node is None or node.domain != "opbuild" or "expression" not in node.attrs or not _is_read_once(to, value.value):
        return None
    match node.attrs["expression"]:
        case ("cast", _, ("saturate", ("round", steps), low, high)) if to.is_zero(value.zero_point):
            return [*node.inputs], limited_and_rounded(steps, low, high)
        case ("cast", _, ("saturate", ("add", ("round", steps), ("cast", _, ("arg", place)) as zero), low, high)):
            if same_zero(to, node.inputs[place], value.zero_point):
                return [*node.inputs], limited_and_rounded(steps, ("sub", low, zero), ("sub", high, zero))
    return None


def _is_read_once(to: IntegerGraph, name: str) -> bool:
    """Return whether one node reads bytes, and one its result if it dequantises."""
    readers = to.readers.get(name, ())
    if len(readers) != 1 or name in to.outputs:
        return False
    (reader,) = readers
    return reader.op_type != "DequantizeLinear" or _is_read_once(to, reader.outputs[0])


def _renumbered(expression: Expression, by: int) -> Expression:
    """Return an expression whose operands have other numbers."""
    return substitute(expression, lambda e: arg(e[1] + by) if e[0] == "arg" else None)


_BINARY = {"QLinearAdd": "Add", "QLinearMul": "Mul"}
_UNARY = {"QLinearSigmoid": "Sigmoid", "QLinearLeakyRelu": "LeakyRelu", "QLinearSoftmax": "Softmax"}


@rewrites(*_BINARY, domain=MICROSOFT)
def _binary(of: IntegerBuilder) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (*of.inputs, "")[:8]
    if of.node.op_type == "QLinearAdd" and all(is_ordinary(of.scope, each) for each in (a_scale, b_scale, scale)):
        operands = Quantized(a, a_scale, a_zero, None), Quantized(b, b_scale, b_zero, None)
        quantize_sum(of, operands, [], (scale, zero))
        return
    values = tuple(_dequantized(of, each) for each in ((a, a_scale, a_zero), (b, b_scale, b_zero)))
    _quantized(of, of(_BINARY[of.node.op_type], *values), (scale, zero))


@rewrites(*_UNARY, domain=MICROSOFT)
def _unary(of: IntegerBuilder) -> None:
    attrs = {name: value for name, value in of.node.attrs.items() if name in ("alpha", "axis")}
    value = _dequantized(of, of.inputs[:3])
    _quantized(of, of(_UNARY[of.node.op_type], value, **attrs), (*of.inputs, "")[3:5])


@rewrites("QLinearConcat", domain=MICROSOFT)
def _concat(of: IntegerBuilder) -> None:
    values = tuple(_dequantized(of, of.inputs[i : i + 3]) for i in range(2, len(of.inputs), 3))
    parts = tuple(of("QuantizeLinear", *_without_absent((value, *of.inputs[:2]))) for value in values)
    of("Concat", *parts, output=of.outputs[0], axis=of.node.attrs["axis"])


@rewrites("QLinearWhere", domain=MICROSOFT)
def _where(of: IntegerBuilder) -> None:
    values = tuple(_dequantized(of, of.inputs[first : first + 3]) for first in (1, 4))
    _quantized(of, of("Where", of.input(0), *values), of.inputs[7:9])


def _dequantized(of: IntegerBuilder, names: tuple[str, ...]) -> Value:
    return of("DequantizeLinear", *_without_absent(names))


def _quantized(of: IntegerBuilder, value: str, parameters: tuple[str, ...]) -> None:
    kind = of.types[of.outputs[0]].dtype
    attrs = {} if parameters[1] else {"output_dtype": kind}
    of("QuantizeLinear", *_without_absent((value, *parameters)), output=of.outputs[0], **attrs)


def _without_absent(names: tuple[str, ...]) -> tuple[str, ...]:
    return names if names[-1] else names[:-1]
