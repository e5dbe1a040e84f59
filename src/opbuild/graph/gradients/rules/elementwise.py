"""Gradients of what computes one element at a time, by the derivatives of its operation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from opbuild.dtypes import is_float, numpy_dtype
from opbuild.graph.gradients.broadcasting import filled, is_empty, summed_to, total
from opbuild.graph.gradients.registry import CONSTANT, RULES, Call, gradient
from opbuild.graph.gradients.terms import FORMULAS, Term
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.operations.derivatives import CONSTANT as STEPS
from opbuild.operations.derivatives import DERIVATIVES
from opbuild.operations.table import OPERATIONS, of_onnx

Parts = Sequence[Value | None]


def _parts(call: Call, name: str, operands: Sequence[Value]) -> Parts:
    """Return the gradient of each operand of an operation that is asked for."""
    if name in STEPS:
        return [None] * len(operands)
    if name not in DERIVATIVES:
        call.refuse(f"the operation {name} has no derivative")
    dy = Term(call.of, call.gradient())
    y, terms = Term(call.of, call.output()), [Term(call.of, each) for each in operands]
    found: list[Value | None] = []
    for index, (operand, derivative) in enumerate(zip(operands, DERIVATIVES[name], strict=True)):
        if derivative is None or not call.wants(index):
            found.append(None)
            continue
        part = derivative(FORMULAS, dy, y, *terms).value
        found.append(summed_to(call.of, part, operand.shape))
    return found


def _own(call: Call, name: str) -> Parts:
    """Differentiate an operator of opbuild's own, named after its operation."""
    return _parts(call, name, [call.input(index) for index in range(OPERATIONS[name].arity)])


def _onnx(call: Call) -> Parts:
    """Differentiate an operator of ONNX that is an operation, with its attributes as further operands."""
    found = of_onnx(call.node.op_type, call.node.attrs)
    if found is None:
        call.refuse("no operation is it with these attributes")
    onnx, operation = found
    x = call.input(0)
    numbers = [call.of.constant(call.number(name, default), x.dtype) for name, default in onnx.parameters]
    return _parts(call, operation.name, [*(call.input(i) for i in range(len(call.inputs))), *numbers])


for _operation in OPERATIONS.values():
    gradient(_operation.op_type, domain="opbuild")(partial(_own, name=_operation.name))
    _known = _operation.as_onnx
    if _operation.name in STEPS:
        CONSTANT.add(("opbuild", _operation.op_type))
    if _known is not None and _known.when is None:
        gradient(_known.name)(_onnx)
        if _operation.name in STEPS:
            CONSTANT.add(("", _known.name))


@gradient("Pow")
def power(call: Call) -> Parts:
    """Differentiate a power; an exponent of another type has no gradient."""
    x, exponent = call.input(0), call.input(1)
    if not is_float(x.dtype):
        return ()
    return _parts(call, "pow", (x, call.of.cast(exponent, x.dtype)))


@gradient("Clip")
def clip(call: Call) -> Parts:
    """Differentiate a number between bounds, which are in it, as in torch's clamp."""
    x = call.input(0)
    limits = np.finfo(numpy_dtype(x.dtype))
    bounds = [
        call.optional(index) or call.of.constant(bound, x.dtype)
        for index, bound in ((1, float(limits.min)), (2, float(limits.max)))
    ]
    return _parts(call, "clip", (x, *bounds))


@gradient("Swish")
def swish(call: Call) -> Parts:
    """Differentiate ``x * sigmoid(alpha * x)``."""
    x, alpha = Term(call.of, call.input(0)), call.number("alpha", 1.0)
    gate = FORMULAS.sigmoid(x * alpha)
    return ((Term(call.of, call.gradient()) * (gate * (1.0 + (x * alpha) * (1.0 - gate)))).value,)


@gradient("CumProd")
def running_product(call: Call) -> Parts:
    """Give each element what the products behind it get, by the product of all before it.

    Elements may be 0, so nothing is divided: ``s = dy + next x * next s`` is added up from the end, by distances that
    double.
    """
    of, x, axis = call.of, call.input(0), int(call.known(1).reshape(-1)[0]) % len(call.input(0).shape)
    if is_empty(x):
        return (call.gradient(),)
    exclusive, reverse, count = int(call.flag("exclusive")), call.flag("reverse"), x.shape[axis]
    before = of("CumProd", x, call.input(1), exclusive=1, reverse=int(reverse))
    flow = _moved(of, call.gradient(), axis, 1, reverse) if exclusive else call.gradient()
    factor, distance = _moved(of, x, axis, 1, reverse), 1
    while distance < count:
        flow = of("Add", flow, of("Mul", factor, _moved(of, flow, axis, distance, reverse)))
        factor = of("Mul", factor, _moved(of, factor, axis, distance, reverse))
        distance *= 2
    return (of("Mul", before, flow),)


def _moved(of: GraphBuilder, x: Value, axis: int, distance: int, back: bool) -> Value:
    """Return what stands so many places behind each element, or before it; 0 where nothing does."""
    amounts = [0] * (2 * len(x.shape))
    amounts[axis], amounts[axis + len(x.shape)] = (distance, -distance) if back else (-distance, distance)
    return of("Pad", x, of.ints(*amounts))


@gradient("DequantizeLinear")
def dequantized(call: Call) -> Parts:
    """Give the scale what the numbers without it make of the gradient; nothing flows through the integers."""
    of, scale = call.of, call.input(1)
    if not call.wants(1):
        return ()
    ones = filled(of, 1.0, scale.dtype, scale.shape)
    plain = of("DequantizeLinear", call.input(0), ones, call.optional(2), **call.node.attrs)
    part, axis = of("Mul", call.gradient(), of.cast(plain, scale.dtype)), call.axis(1, len(call.input(0).shape))
    if len(scale.shape) <= 1 and scale.shape != part.shape:  # one scale, or one for each position of the axis
        kept = axis if scale.shape not in ((), (1,)) else None
        axes = [each for each in range(len(part.shape)) if each != kept]
        return None, of.reshape(total(of, part, axes), scale.shape)
    blocks, extent = scale.shape[axis], part.shape[axis]
    if extent % blocks:
        call.refuse("its last block is smaller than the others")
    shape = (*part.shape[:axis], blocks, extent // blocks, *part.shape[axis + 1 :])
    return None, total(of, of.reshape(part, shape), (axis + 1,))


def _in_type_of(call: Call, x: Value) -> Parts:
    """Take a gradient back to the type of what was converted; nothing flows through other types than floats."""
    return (call.of.cast(call.gradient(), x.dtype),) if is_float(x.dtype) else ()


RULES.register_all(
    {
        "Cast CastLike": lambda call: _in_type_of(call, call.input(0)),
        "Identity": lambda call: () if call.flag("stop_gradient") else (call.gradient(),),
        "Dropout": lambda call: (call.gradient(),),  # nothing is dropped, or the network could not have been typed
        "Trilu": lambda call: (call.of("Trilu", call.gradient(), call.optional(1), **call.node.attrs),),
        "CumSum": lambda call: (  # from the other end
            call.of(
                "CumSum",
                call.gradient(),
                call.input(1),
                exclusive=int(call.flag("exclusive")),
                reverse=int(not call.flag("reverse")),
            ),
        ),
        "Expand": lambda call: (summed_to(call.of, call.gradient(), call.input(0).shape),),
    }
)
