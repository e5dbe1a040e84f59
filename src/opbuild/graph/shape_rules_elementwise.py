"""Shape rules of operators of one element at a time, and of those that make a value from a shape or from bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from opbuild.dtypes import ROUND_MODES, stored_bits
from opbuild.errors import UnsupportedOperatorError
from opbuild.graph.extents import is_open
from opbuild.graph.shape_rules import RULES, ShapeCall, Types, broadcast, broadcast_of, named_dtype, rule, same_dtype
from opbuild.graph.symbolic_numbers import Real, real, truncated
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
    dtype = _chosen_dtype(call)
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


@rule("Shape")
def shape(call: ShapeCall) -> Types:
    """The input's extents from ``start`` to ``end``."""
    rank = len(call.shape(0))
    chosen = range(rank)[slice(call.attr("start", 0), call.attr("end", None))]
    return (TensorType("int64", (len(chosen),)),)


@rule("ConstantOfShape")
def constant_of_shape(call: ShapeCall) -> Types:
    """One value everywhere; 0.0 if none is given."""
    value = call.attr("value", None)
    extents = call.ints(0)
    if any(extent < 0 for extent in extents):
        call.fail(f"shape {list(extents)} is negative")
    return (TensorType("float32" if value is None else str(np.asarray(value).dtype), extents),)


@rule("Range")
def range_(call: ShapeCall) -> Types:
    """Numbers from a start to a limit."""
    dtype = same_dtype(call)
    start, limit, delta = (call.value(index).reshape(-1).tolist()[0] for index in range(3))
    if delta == 0:
        call.fail("the step is 0")
    if any(isinstance(each, Real) for each in (start, limit, delta)):
        return (TensorType(dtype, (_count(start, limit, delta),)),)
    if is_open((start, limit, delta)):  # they are integers
        return (TensorType(dtype, (max(-((start - limit) // delta), 0),)),)
    return (TensorType(dtype, (max(math.ceil((limit - start) / delta), 0),)),)


def _count(start: Any, limit: Any, delta: Any) -> Any:
    """Return the length of a range of open floating-point bounds, worked out as for known ones."""
    start, limit, delta = (real("float64", each) for each in (start, limit, delta))
    return max(truncated(real("ceil", real("divide", real("subtract", limit, start), delta))), 0)


@rule("OneHot")
def one_hot(call: ShapeCall) -> Types:
    """One more dimension, of the extent in the second input."""
    indices, depth = call.shape(0), call.ints(1)[0]
    axis = call.axis(int(call.attr("axis", -1)), len(indices) + 1)
    return (TensorType(call.dtype(2), (*indices[:axis], depth, *indices[axis:])),)


def _chosen_dtype(call: ShapeCall) -> str:
    chosen = call.attr("dtype", None)
    return call.dtype(0) if chosen is None else named_dtype(call, chosen)


RULES.register_all(
    {
        "EyeLike": lambda call: (TensorType(_chosen_dtype(call), call.rank(0, 2)),),
        "RandomNormal RandomUniform": lambda call: (
            TensorType(named_dtype(call, call.attr("dtype", 1)), tuple(map(int, call.attr("shape", ())))),
        ),
        "Size": lambda call: (TensorType("int64", call.shape(0)[:0]),),
    }
)
