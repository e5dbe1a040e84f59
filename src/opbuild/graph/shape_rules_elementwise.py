"""Shape rules of operators that compute one element at a time: arithmetic, comparison, activation, conversion."""

from __future__ import annotations

from opbuild.dtypes import ROUND_MODES, stored_bits
from opbuild.errors import UnsupportedOperatorError
from opbuild.graph.shape_rules import RULES, ShapeCall, Types, broadcast, broadcast_of, named_dtype, rule, same_dtype
from opbuild.graph.types import TensorType
from opbuild.operations.record import Operation
from opbuild.operations.table import OPERATIONS
from opbuild.text.plural import counted


@rule("Bernoulli", "Hardmax", "Identity", "LRN", "LogSoftmax", "LpNormalization", "MeanVarianceNormalization")
@rule("RandomNormalLike", "RandomUniformLike", "Softmax", "Swish", "Trilu")
def same(call: ShapeCall) -> Types:
    """One output with the first input's shape and, unless ``dtype`` says otherwise, its element type."""
    first = call.type(0)
    if call.node.op_type in ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization"):
        call.axis(call.attr("axis", -1), len(first.shape))
    given = call.attr("dtype", None)
    dtype = first.dtype if given is None else named_dtype(call, given)
    if call.node.op_type in ("RandomNormalLike", "RandomUniformLike") and not dtype.startswith("float"):
        call.fail_dtype(f"it makes floating-point numbers, not {dtype}: give it the attribute dtype")
    return (TensorType(dtype, first.shape),)


@rule("Sum", "Mean", "Max", "Min")
def arithmetic(call: ShapeCall) -> Types:
    """Operands of one element type, broadcast together."""
    dtype = same_dtype(call)
    return (TensorType(dtype, broadcast(call, [item.shape for item in call.types if item is not None])),)


RULES.register_all(
    {"IsInf": lambda call: (TensorType("bool", call.shape(0)),), "Pow": broadcast_of(0, 1)}  # whatever the exponent is
)


@rule("Clip")
def clip(call: ShapeCall) -> Types:
    """The input's type; the bounds are scalars of the same element type."""
    same_dtype(call)
    for index in (1, 2):
        if call.has(index) and call.type(index).size != 1:
            call.fail("a bound is not a scalar")
    return (call.type(0),)


@rule("Cast", "CastLike")
def cast(call: ShapeCall) -> Types:
    """The element type that attribute ``to`` names, or the second input's."""
    mode = call.node.text("round_mode", ROUND_MODES[0])
    if mode not in ROUND_MODES:
        call.fail(f"its round_mode is {mode!r}, no one of {', '.join(ROUND_MODES)}")
    dtype = call.dtype(1) if call.node.op_type == "CastLike" else named_dtype(call, call.attr("to", 0))
    return (TensorType(dtype, call.shape(0)),)


@rule("BitCast")
def bit_cast(call: ShapeCall) -> Types:
    """The element type that attribute ``to`` names; it has as many bits as the input's."""
    have, dtype = call.dtype(0), named_dtype(call, call.attr("to", 0))
    if stored_bits(have) != stored_bits(dtype):
        call.fail_dtype(f"{dtype} has {stored_bits(dtype)} bits, {have} has {stored_bits(have)}")
    return (TensorType(dtype, call.shape(0)),)


@rule("Dropout")
def dropout(call: ShapeCall) -> Types:
    """The input's type, and its mask; in training it is random, unless nothing is dropped."""
    training = call.is_known(2) and bool(call.value(2).any())
    if training and not (call.is_known(1) and not call.value(1).any()):
        raise UnsupportedOperatorError(
            f"Dropout node {call.node.name!r} is in training mode, and its results would be random",
            "export the model for inference",
        )
    return (call.type(0), TensorType("bool", call.shape(0)))


def _operation_rule(operation: Operation, op_type: str, count: int, domain: str) -> None:
    """Register the rule of an operator that is an operation: operands of one type, broadcast together.

    The standard lets only the slope of a PRelu broadcast, ONNX Runtime its input too.
    """

    @rule(op_type, domain=domain)
    def typed(call: ShapeCall) -> Types:
        if domain and len(call.types) != count:
            call.fail(f"it takes {counted(count, 'input')}, not {len(call.types)}")
        if operation.conditions and not domain and call.dtype(0) != "bool":
            call.fail_dtype("the condition is not bool")
        dtype = same_dtype(call, operation.conditions, count)
        shape = broadcast(call, [call.shape(index) for index in range(count)])
        return (TensorType("bool" if operation.predicate else dtype, shape),)


_ONNX = {each.as_onnx.name: (each, each.as_onnx) for each in OPERATIONS.values() if each.as_onnx is not None}
"""An operation of each operator of ONNX: several of one differ by attributes, not in types."""

for _operation in OPERATIONS.values():
    _operation_rule(_operation, _operation.op_type, _operation.arity, "opbuild")
for _name, (_operation, _onnx) in _ONNX.items():
    if not _onnx.variadic:
        _operation_rule(_operation, _name, _operation.arity - len(_onnx.parameters), "")
