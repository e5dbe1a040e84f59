"""Every record of an elementwise operation is complete, and says what ONNX says."""

from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
import pytest
from onnx import defs, helper

from opbuild.backend.halide.definition import TYPES
from opbuild.backend.halide.expression import compile_expression
from opbuild.errors import CompileError
from opbuild.operations.evaluation import apply
from opbuild.operations.expression import arg, dtype_of, is_refined
from opbuild.operations.record import Onnx, Operation
from opbuild.operations.table import OPERATIONS, of_onnx

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NAMES = sorted(OPERATIONS)


def types_of(operation: Operation) -> tuple[str, ...]:
    """Return the element types that have an operation."""
    return {
        "floats": FLOATS,
        "integers": INTEGERS,
        "numbers": (*FLOATS, *INTEGERS),
        "any": (*FLOATS, *INTEGERS, "bool"),
        "truth": (*FLOATS, *INTEGERS, "bool"),
    }[operation.kinds]


def operand_types(operation: Operation, dtype: str) -> list[str]:
    """Return the types of an operation's operands, conditions first."""
    return ["bool"] * operation.conditions + [dtype] * (operation.arity - operation.conditions)


def compiled(operation: Operation, dtypes: list[str], refined: bool = False) -> Any:
    """Return an operation's code."""
    index = [hl.Var("i")]
    operands = [hl.ImageParam(TYPES[dtype], 1, f"x{number}")[index] for number, dtype in enumerate(dtypes)]
    return compile_expression((operation.name, *map(arg, range(operation.arity))), operands, index, refined=refined)


@pytest.mark.parametrize("name", NAMES)
def test_a_record_has_a_formula_for_every_type_that_it_names(name: str) -> None:
    """Numpy and the compiler give it for each, of the type that expressions say, and for no other."""
    operation = OPERATIONS[name]
    expression = (name, *map(arg, range(operation.arity)))
    for dtype in (*FLOATS, *INTEGERS, "bool"):
        dtypes = operand_types(operation, dtype)
        if dtype not in types_of(operation):
            # A bool is a byte where there are integers, and no number in ONNX.
            if dtype != "bool" or operation.kinds == "floats":
                with pytest.raises(CompileError, match=f"operation {name} is not defined for"):
                    compiled(operation, dtypes)
            continue
        result = dtype_of(expression, dtypes)
        assert result == ("bool" if operation.predicate else dtype)
        if dtype == "float64" and not operation.float64:
            with pytest.raises(CompileError, match=f"operation {name} is not defined for float64"):
                compiled(operation, dtypes)
            continue
        assert compiled(operation, dtypes).type() == TYPES[result]
        assert apply(name, *(np.ones(3, each) for each in dtypes)).dtype == result


@pytest.mark.parametrize("name", [name for name in NAMES if OPERATIONS[name].precise])
def test_a_precise_formula_makes_other_code(name: str) -> None:
    """The mode is in a descriptor's key exactly where it changes the code of a float32."""
    operation = OPERATIONS[name]
    dtypes = ["float32"] * operation.arity
    assert is_refined((name, *map(arg, range(operation.arity))))
    assert compiled(operation, dtypes, refined=True).type() == TYPES["float32"]
    assert str(compiled(operation, dtypes)) != str(compiled(operation, dtypes, refined=True))


@pytest.mark.parametrize("name", [name for name in NAMES if OPERATIONS[name].onnx])
def test_a_record_agrees_with_the_operator_that_onnx_defines(name: str) -> None:
    """Its operands are the operator's inputs, then its attributes, whose defaults are ONNX's."""
    operation = OPERATIONS[name]
    onnx = operation.as_onnx
    assert onnx is not None
    schema = defs.get_schema(onnx.name)
    inputs = operation.arity - len(onnx.parameters)
    assert (schema.min_input, schema.max_input > 99) == (1 if onnx.variadic else inputs, onnx.variadic)
    for parameter, default in onnx.parameters:
        assert np.float32(helper.get_attribute_value(schema.attributes[parameter].default_value)) == np.float32(default)
    assert set(schema.attributes) == {parameter for parameter, _ in onnx.parameters} | _chooses(onnx)


def _chooses(onnx: Onnx) -> set[str]:
    """Return the attributes that choose between the operations that an operator is."""
    of_same_name = [each.as_onnx for each in OPERATIONS.values() if each.as_onnx and each.as_onnx.name == onnx.name]
    chosen = [each.when for each in of_same_name if each.when is not None]
    for attribute, value, default in chosen:
        stored = defs.get_schema(onnx.name).attributes[attribute]
        if not stored.required:
            given = helper.get_attribute_value(stored.default_value)
            assert (given.decode() if isinstance(given, bytes) else given) == default
        found, other = of_onnx(onnx.name, {attribute: value}), of_onnx(onnx.name, {attribute: "another"})
        assert found is not None
        assert other is not None
        assert found[1] is not other[1]
    return {attribute for attribute, _, _ in chosen}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_half_a_power_of_minus_infinity_is_infinity(shape: tuple[int, ...], dtype: str) -> None:
    """As IEEE 754 has it, and a kernel: for one exponent numpy takes the square root, which is NaN."""
    with np.errstate(invalid="ignore"):
        found = apply("pow", np.full(shape, -np.inf, dtype), np.array(0.5, dtype))
    assert np.array_equal(found, np.full(shape, np.inf, dtype))
