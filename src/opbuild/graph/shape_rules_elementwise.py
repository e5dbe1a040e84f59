"""Shape rules of operators that compute one element at a time: arithmetic, comparison, activation, conversion."""

from __future__ import annotations

from opbuild.errors import UnsupportedOperatorError
from opbuild.graph.shape_rules import Call, Types, broadcast, named_dtype, rule, same_dtype
from opbuild.graph.types import TensorType
from opbuild.operations.expression import OPERATIONS
from opbuild.text.plural import counted

_PREDICATES = frozenset(
    [
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
        "and",
        "or",
        "xor",
        "not",
        "is_nan",
        "is_inf",
        "is_finite",
    ]
)


@rule(
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu", "Cos", "Cosh", "Elu",
    "Erf", "Exp",
    "Floor", "Gelu", "HardSigmoid", "HardSwish", "Hardmax", "Identity", "LRN", "LeakyRelu", "Log", "LogSoftmax",
    "LpNormalization", "MeanVarianceNormalization", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Shrink",
    "Sigmoid",
    "Sign", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
    "Trilu",
    "Bernoulli", "RandomNormalLike", "RandomUniformLike",
)  # fmt: skip
def same(call: Call) -> Types:
    """One output with the first input's shape and, unless ``dtype`` says otherwise, its element type."""
    first = call.type(0)
    if call.node.op_type in ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization"):
        call.axis(call.attr("axis", -1), len(first.shape))
    given = call.attr("dtype", None)
    dtype = first.dtype if given is None else named_dtype(call, given)
    if call.node.op_type in ("RandomNormalLike", "RandomUniformLike") and not dtype.startswith("float"):
        call.fail_dtype(f"it makes floating-point numbers, not {dtype}: give it the attribute dtype")
    return (TensorType(dtype, first.shape),)


@rule("Not", "IsNaN", "IsInf")
def predicate(call: Call) -> Types:
    """A truth value for each element."""
    return (TensorType("bool", call.shape(0)),)


@rule("Add", "Sub", "Mul", "Div", "Mod", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift")
@rule("Max", "Min", "Sum", "Mean")
def arithmetic(call: Call) -> Types:
    """Operands of one element type, broadcast together."""
    dtype = same_dtype(call)
    return (TensorType(dtype, broadcast(call, [item.shape for item in call.types if item is not None])),)


@rule("Pow")
def power(call: Call) -> Types:
    """The base's element type, whatever the exponent's is."""
    return (TensorType(call.dtype(0), broadcast(call, (call.shape(0), call.shape(1)))),)


@rule("PRelu")
def prelu(call: Call) -> Types:
    """An input and a slope, broadcast together: the text lets the slope alone broadcast, ONNX Runtime either."""
    return (TensorType(same_dtype(call), broadcast(call, (call.shape(0), call.shape(1)))),)


@rule("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor")
def comparison(call: Call) -> Types:
    """Operands of one element type, broadcast together, to truth values."""
    same_dtype(call)
    return (TensorType("bool", broadcast(call, (call.shape(0), call.shape(1)))),)


@rule("Where")
def where(call: Call) -> Types:
    """A condition and two values of one element type, broadcast together."""
    if call.dtype(0) != "bool":
        call.fail_dtype("the condition is not bool")
    dtype = same_dtype(call, 1, 3)
    return (TensorType(dtype, broadcast(call, (call.shape(0), call.shape(1), call.shape(2)))),)


@rule("Clip")
def clip(call: Call) -> Types:
    """The input's type; the bounds are scalars of the same element type."""
    same_dtype(call)
    for index in (1, 2):
        if call.has(index) and call.type(index).size != 1:
            call.fail("a bound is not a scalar")
    return (call.type(0),)


@rule("Cast")
def cast(call: Call) -> Types:
    """The element type that attribute ``to`` names."""
    return (TensorType(named_dtype(call, call.attr("to", 0)), call.shape(0)),)


@rule("CastLike")
def cast_like(call: Call) -> Types:
    """The second input's element type."""
    return (TensorType(call.dtype(1), call.shape(0)),)


@rule("Dropout")
def dropout(call: Call) -> Types:
    """The input's type, and its mask; in training it is random, unless nothing is dropped."""
    training = call.is_known(2) and bool(call.value(2).any())
    if training and not (call.is_known(1) and not call.value(1).any()):
        raise UnsupportedOperatorError(
            f"Dropout node {call.node.name!r} is in training mode, and its results would be random",
            "export the model for inference",
        )
    return (call.type(0), TensorType("bool", call.shape(0)))


@rule("QuantizeLinear")
def quantize(call: Call) -> Types:
    """The zero point's element type, ``output_dtype``, or uint8."""
    if call.has(2):
        return (TensorType(call.dtype(2), call.shape(0)),)
    return (TensorType(named_dtype(call, call.attr("output_dtype", 0) or 2), call.shape(0)),)


@rule("DequantizeLinear")
def dequantize(call: Call) -> Types:
    """The scale's element type, or ``output_dtype``."""
    chosen = call.attr("output_dtype", 0)
    return (TensorType(named_dtype(call, chosen) if chosen else call.dtype(1), call.shape(0)),)


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _operation_rule(name: str, operands: int) -> None:
    @rule(_camel(name), domain="opbuild")
    def typed(call: Call) -> Types:
        if len(call.types) != operands:
            call.fail(f"it takes {counted(operands, 'input')}, not {len(call.types)}")
        dtype = same_dtype(call, 1 if name == "where" else 0)
        shape = broadcast(call, [call.shape(index) for index in range(operands)])
        return (TensorType("bool" if name in _PREDICATES else dtype, shape),)


for _name, _operands in OPERATIONS.items():
    _operation_rule(_name, _operands)
