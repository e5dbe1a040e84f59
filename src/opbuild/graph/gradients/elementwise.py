"""Gradients of elementwise operations, by their derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from opbuild.dtypes import is_float, numpy_dtype
from opbuild.graph.gradients.registry import (
    CONSTANT,
    FORMULAS,
    RULES,
    Backward,
    Parts,
    Term,
    gradient,
    is_empty,
    summed_to,
)
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.operations.derivatives import CONSTANT as STEPS
from opbuild.operations.derivatives import DERIVATIVES
from opbuild.operations.table import OPERATIONS, of_onnx


def _operand_gradients(of: Backward, name: str, operands: Sequence[Value]) -> Parts:
    """Return the gradient of each operand of an operation that is asked for."""
    if name in STEPS:
        return [None] * len(operands)
    if name not in DERIVATIVES:
        of.refuse(f"the operation {name} has no derivative")
    dy = Term(of, of.gradient())
    y, terms = Term(of, of.output()), [Term(of, each) for each in operands]
    found: list[Value | None] = []
    for index, (operand, derivative) in enumerate(zip(operands, DERIVATIVES[name], strict=True)):
        if derivative is None or not of.wants(index):
            found.append(None)
            continue
        part = derivative(FORMULAS, dy, y, *terms).value
        found.append(summed_to(of, part, operand.shape))
    return found


def _own_operation(of: Backward, name: str) -> Parts:
    """Differentiate an operator of opbuild's own, named after its operation."""
    return _operand_gradients(of, name, [of.input(index) for index in range(OPERATIONS[name].arity)])


def _onnx(of: Backward) -> Parts:
    """Differentiate an operator of ONNX that is an operation, with its attributes as further operands."""
    found = of_onnx(of.node.op_type, of.node.attrs)
    if found is None:
        of.refuse("no operation is it with these attributes")
    onnx, operation = found
    x = of.input(0)
    numbers = [of.constant(of.number(name, default), x.dtype) for name, default in onnx.parameters]
    return _operand_gradients(of, operation.name, [*(of.input(i) for i in range(len(of.inputs))), *numbers])


for _operation in OPERATIONS.values():
    gradient(_operation.op_type, domain="opbuild")(partial(_own_operation, name=_operation.name))
    _known = _operation.as_onnx
    if _operation.name in STEPS:
        CONSTANT.add(("opbuild", _operation.op_type))
    if _known is not None and _known.when is None:
        gradient(_known.name)(_onnx)
        if _operation.name in STEPS:
            CONSTANT.add(("", _known.name))


@gradient("Pow")
def power(of: Backward) -> Parts:
    """Differentiate a power; an exponent of another type has no gradient."""
    x, exponent = of.input(0), of.input(1)
    if not is_float(x.dtype):
        return ()
    return _operand_gradients(of, "pow", (x, of.cast(exponent, x.dtype)))


@gradient("Clip")
def clip(of: Backward) -> Parts:
    """Differentiate a number between bounds, which are in it, as in torch's clamp."""
    x = of.input(0)
    limits = np.finfo(numpy_dtype(x.dtype))
    ends = enumerate((float(limits.min), float(limits.max)), 1)
    bounds = [of.optional(index) or of.constant(bound, x.dtype) for index, bound in ends]
    return _operand_gradients(of, "clip", (x, *bounds))


@gradient("Swish")
def swish(of: Backward) -> Parts:
    """Differentiate ``x * sigmoid(alpha * x)``."""
    x, alpha = Term(of, of.input(0)), of.number("alpha", 1.0)
    gate = FORMULAS.sigmoid(x * alpha)
    return ((Term(of, of.gradient()) * (gate * (1.0 + (x * alpha) * (1.0 - gate)))).value,)


@gradient("CumProd")
def running_product(of: Backward) -> Parts:
    """Give each element the gradient of the products behind it, by the product of all before it.

    Elements may be 0, so nothing is divided: ``s = dy + next x * next s`` is added up from the end, by distances that
    double.
    """
    x, axis = of.input(0), int(of.known_input(1).reshape(-1)[0]) % len(of.input(0).shape)
    if is_empty(x):
        return (of.gradient(),)
    exclusive, reverse, count = int(of.flag("exclusive")), of.flag("reverse"), x.shape[axis]
    before = of("CumProd", x, of.input(1), exclusive=1, reverse=int(reverse))
    flow = _shifted(of, of.gradient(), axis, 1, reverse) if exclusive else of.gradient()
    factor, distance = _shifted(of, x, axis, 1, reverse), 1
    while distance < count:
        flow = of("Add", flow, of("Mul", factor, _shifted(of, flow, axis, distance, reverse)))
        factor = of("Mul", factor, _shifted(of, factor, axis, distance, reverse))
        distance *= 2
    return (of("Mul", before, flow),)


def _shifted(of: GraphBuilder, x: Value, axis: int, distance: int, back: bool) -> Value:
    """Return the elements so many places behind or before each one; 0 where there are none."""
    amounts = [0] * (2 * len(x.shape))
    amounts[axis], amounts[axis + len(x.shape)] = (distance, -distance) if back else (-distance, distance)
    return of("Pad", x, of.ints(*amounts))


@gradient("CumSum")
def running_sum(of: Backward) -> Parts:
    """Add up from the other end."""
    exclusive, reverse = of.attr("exclusive", 0), 1 - of.attr("reverse", 0)
    return (of("CumSum", of.gradient(), of.input(1), exclusive=exclusive, reverse=reverse),)


@gradient("DequantizeLinear")
def dequantized(of: Backward) -> Parts:
    """Give the scale the gradient's product with the numbers without it; nothing flows through the integers."""
    scale = of.input(1)
    if not of.wants(1):
        return ()
    ones = of.filled(1.0, scale.dtype, scale.shape)
    plain = of("DequantizeLinear", of.input(0), ones, of.optional(2), **of.node.attrs)
    part, axis = of("Mul", of.gradient(), of.cast(plain, scale.dtype)), of.axis(1, len(of.input(0).shape))
    if len(scale.shape) <= 1 and scale.shape != part.shape:  # one scale, or one for each position of the axis
        kept = axis if scale.shape not in ((), (1,)) else None
        axes = [each for each in range(len(part.shape)) if each != kept]
        return None, of.reshape(of.sum(part, axes), scale.shape)
    blocks, extent = scale.shape[axis], part.shape[axis]
    if extent % blocks:
        of.refuse("its last block is smaller than the others")
    shape = (*part.shape[:axis], blocks, extent // blocks, *part.shape[axis + 1 :])
    return None, of.sum(of.reshape(part, shape), (axis + 1,))


RULES.register_all(
    {
        "Cast CastLike": lambda of: (of.cast(of.gradient(), of.input(0).dtype),) if is_float(of.input(0).dtype) else (),
        "Identity": lambda of: () if of.flag("stop_gradient") else (of.gradient(),),
        "Dropout": lambda of: (of.gradient(),),  # nothing is dropped, or the network could not have been typed
        "Trilu": lambda of: (of("Trilu", of.gradient(), of.optional(1), **of.node.attrs),),
        "Expand": lambda of: (summed_to(of, of.gradient(), of.input(0).shape),),
    }
)
