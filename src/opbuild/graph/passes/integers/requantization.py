"""QuantizeLinear of what is made of quantised numbers: of a convolution's sums, of two added values, of what moved.

None of these divides by the scale of the result, which would take as long as ten other instructions: the scales of what
comes in are divided by it when the network is built. So a convolution is computed as QLinearConv has it, and a sum as
ONNX Runtime's QLinearAdd.
"""

from __future__ import annotations

import numpy as np

from opbuild.graph.passes.integers.movement import is_ordinary, quantize_moved, same_zero
from opbuild.graph.passes.integers.registry import BYTES, IntegerBuilder, IntegerGraph, Quantized, rewrites
from opbuild.graph.passes.rewriter import KeptError
from opbuild.graph.quantized import FLOAT, limited_and_rounded, limits, quantized, wide
from opbuild.operations.expression import Expression, arg, substitute

Bounds = list[tuple[str, str]]
"""By what a value is limited, in order: the operations, and the names of their bounds."""


@rewrites("QuantizeLinear")
def _quantize(of: IntegerBuilder) -> None:
    """Quantise what a convolution made or two values added, perhaps after Relu or Clip, or what moves bytes."""
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
    """Append the sum of quantised values as bytes: the node's output.

    Args:
        of: What is appended to.
        operands: What is added, of one scale each.
        bounds: By what the sum is limited.
        result: Its scale and its zero point.
    """
    step, inputs, terms = of.reshaped(result[0], ()), list[str](), list[Expression]()
    last = next(
        (each for made in reversed(of.scope.nodes) for each in operands if each.value in made.outputs), operands[0]
    )
    for each in operands:
        # The sums of one product can become the operands' only; those of another are four times the bytes.
        made = _in_steps(of.scope, each) if each is last else None
        names, steps = made or _from_bytes(of, each)
        ratio = of("Div", of.reshaped(each.scale, ()), step)
        terms.append(("mul", _moved(steps, len(inputs)), arg(len(inputs) + len(names))))
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
    """Return by what a value is limited, None if by what is computed, and what is limited."""
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
    """Return the quantised values whose sum ``name`` is, if nothing else reads it nor what is limited of it."""
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


def _in_steps(to: IntegerGraph, value: Quantized) -> tuple[list[str], Expression] | None:
    """Return the same of what is rounded and limited here and read by nothing else: no bytes are made in between."""
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
    """Return whether one node reads bytes, and one what that makes of them if it dequantises."""
    readers = to.readers.get(name, ())
    if len(readers) != 1 or name in to.outputs:
        return False
    (reader,) = readers
    return reader.op_type != "DequantizeLinear" or _is_read_once(to, reader.outputs[0])


def _moved(expression: Expression, by: int) -> Expression:
    """Return an expression whose operands have other numbers."""
    return substitute(expression, lambda e: arg(e[1] + by) if e[0] == "arg" else None)
