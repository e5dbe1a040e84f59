"""elementwise in Triton, interpreted: every operation on every type against numpy, however operands lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from opbuild.operations.evaluation import evaluate_expression
from opbuild.operations.expression import Expression, arg, const
from opbuild.operations.table import OPERATIONS

pytest.importorskip("triton", reason="Triton is not installed: pip install '.[gpu]'")

from support.cuda_kernels import describe, guarded, is_untouched, run

Array = Any
DRAW = np.random.default_rng(11)
FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
TOLERANCE = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-12}


def compute(expression: Expression, inputs: Sequence[Array], width: int = 16, offset: int = 0) -> Array:
    """Return the kernel's result for operands of its extents; canaries are looked at."""
    with np.errstate(all="ignore"):
        wanted = evaluate_expression(expression, [np.zeros(1, each.dtype) for each in inputs])
    out, memory = guarded(inputs[0].shape, wanted.dtype, offset)
    desc = describe("elementwise", inputs, [out], {"expression": [*expression]}, {"width": width})
    run(desc, inputs, [out])
    found = out.copy()
    assert is_untouched(out, memory)
    return found


def check(expression: Expression, inputs: Sequence[Array], tolerance: float = 0.0, **how: Any) -> None:
    """Compare a kernel with numpy."""
    got, wanted = compute(expression, inputs, **how), evaluate_expression(expression, inputs)
    assert got.dtype == wanted.dtype
    if tolerance and got.dtype.kind == "f":
        limits = np.finfo(got.dtype)
        absolute = float(limits.tiny) * 8 if got.dtype != np.float16 else float(limits.smallest_subnormal)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(got.astype("f8"), wanted.astype("f8"), tolerance, absolute)
    else:
        np.testing.assert_array_equal(got, wanted)


def values(dtype: str) -> Array:
    """Return numbers of a type at which functions go wrong, and others."""
    if dtype == "bool":
        return DRAW.integers(0, 2, 77).astype(bool)
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        near = [0, 1, 2, 3, 7, 8, 31, 63, limits.max, limits.max - 1, limits.min, limits.min + 1]
        minus = [-1, -2, -7] if limits.min < 0 else []
        return np.array([*near, *minus, *DRAW.integers(limits.min, limits.max, 62, dtype)], dtype)
    limits = np.finfo(dtype)
    special = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 6.0, 7.9, 20.0, 88.3, 89.0, np.inf, limits.tiny, limits.max, limits.eps]
    special += [limits.smallest_subnormal]
    return np.array([*special, *(-x for x in special), np.nan, *DRAW.normal(0, 3, 100)], dtype)


def pairs(dtype: str) -> tuple[Array, Array]:
    """Return each value beside each of some."""
    one = values(dtype)
    other = one[:: max(1, len(one) // 24)]
    return tuple(np.ascontiguousarray(each.ravel()) for each in np.meshgrid(one, other))  # type: ignore[return-value]


def types_of(name: str) -> list[str]:
    """Return the types that have an operation."""
    operation = OPERATIONS[name]
    floats = [each for each in FLOATS if each != "float64" or operation.float64]
    if operation.kinds in ("any", "truth"):
        return [*floats, *INTEGERS, "bool"]
    return [*(floats if operation.has_floats else []), *(INTEGERS if operation.has_integers else [])]


CASES = [(name, dtype) for name in OPERATIONS for dtype in types_of(name)]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_every_operation_is_numpy_s(name: str, dtype: str) -> None:
    """Also at infinities, NaN, the least and the greatest numbers; what is exact is so bit for bit."""
    operation = OPERATIONS[name]
    one, other = pairs(dtype)
    third = np.roll(one, 5)
    operands = [one, other, third][: operation.arity]
    for number in range(operation.conditions):
        operands[number] = (np.arange(len(one)) % 3 == 0).astype(bool)
    if name == "celu":  # whose divisor is no 0, of which graphs make an error
        operands[1] = np.where(operands[1] == 0, np.array(0.75, dtype), operands[1])
    expression = (name, *map(arg, range(operation.arity)))
    exact = operation.exact or operation.predicate or name in ("add", "sub", "mul", "div", "sqrt", "square")
    check(expression, operands, 0.0 if exact else TOLERANCE.get(dtype, 0.0))


TARGETS = (*FLOATS, *INTEGERS, "bool")


@pytest.mark.parametrize("source", TARGETS)
@pytest.mark.parametrize("target", TARGETS)
def test_every_conversion_is_numpy_s(source: str, target: str) -> None:
    """Floats that an integer type cannot hold become what they become on CPUs, too."""
    check(("cast", target, arg(0)), [values(source)])


@pytest.mark.parametrize("exponent", [2.0, 3.0, 4.0, -1.0, 0.5, 1.7])
@pytest.mark.parametrize("dtype", FLOATS)
def test_powers_of_known_exponents_are_right(exponent: float, dtype: str) -> None:
    """Those that need no logarithm, too."""
    check(("pow", arg(0), const(exponent, dtype)), [values(dtype)], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TARGETS)
def test_literals_are_what_they_say(dtype: str) -> None:
    """Infinities, NaN, the sign of zero and the greatest integers, too."""
    limits = np.iinfo(dtype) if dtype in INTEGERS else None
    literals = [limits.min, limits.max, 1] if limits else [0, 1] if dtype == "bool" else [np.inf, -np.inf, np.nan, -0.0]
    for value in literals:
        x = np.ones(3, dtype)
        literal = const(value, dtype)
        got = compute(("where", ("cast", "bool", arg(0)), literal, arg(0)), [x])
        wanted = np.full(3, value, dtype)
        np.testing.assert_array_equal(got, wanted)
        if dtype in FLOATS:
            np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))


CHAIN: Expression = ("tanh", ("add", ("mul", arg(0), arg(1)), ("where", ("less", arg(0), arg(1)), arg(0), arg(1))))


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_chain_rounds_after_each_operation(dtype: str) -> None:
    """As the operators one by one do: no product is contracted with a sum, and 16 bits are rounded each time."""
    one, other = pairs(dtype)
    check(("add", ("mul", arg(0), arg(1)), arg(0)), [one, other])
    check(CHAIN, [one, other], TOLERANCE[dtype])


SHAPES = [
    (),
    (1,),
    (0,),
    (5, 0),
    (0, 3),
    (1000,),
    (1027,),
    (3, 517),
    (517, 3),
    (2, 3, 33),
    (3, 1, 2, 40),
    (2, 1, 3, 2, 5),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", [1, 16])
@pytest.mark.parametrize("offset", [0, 1])
def test_any_extents_are_right(shape: tuple[int, ...], width: int, offset: int) -> None:
    """Of any rank, none and empty ones too, at any address; nothing is written beside."""
    x, y = (DRAW.standard_normal(shape).astype(np.float32) for _ in range(2))
    check(("add", arg(0), arg(1)), [x, y], width=width, offset=offset)


def lying(shape: tuple[int, ...], how: str, dtype: str) -> Array:
    """Return an array of a shape that lies in some way."""
    if how == "transposed":
        return np.ascontiguousarray(DRAW.standard_normal(shape[::-1]).astype(dtype)).T
    if how == "scalar":
        return np.broadcast_to(np.array(1.5, dtype), shape)
    if how == "row":
        return np.broadcast_to(DRAW.standard_normal(shape[-1]).astype(dtype), shape)
    if how == "column":
        return np.broadcast_to(DRAW.standard_normal((*shape[:-1], 1)).astype(dtype), shape)
    if how == "padded":
        return DRAW.standard_normal((*shape[:-1], shape[-1] + 3)).astype(dtype)[..., : shape[-1]]
    if how == "reversed":
        return DRAW.standard_normal(shape).astype(dtype)[..., ::-1]
    if how == "every other":
        return DRAW.standard_normal((*shape[:-1], 2 * shape[-1])).astype(dtype)[..., ::2]
    return DRAW.standard_normal(shape).astype(dtype)


WAYS = ("dense", "transposed", "scalar", "row", "column", "padded", "reversed", "every other")


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("one", WAYS)
@pytest.mark.parametrize("other", WAYS)
def test_operands_lie_in_any_way(one: str, other: str, dtype: str) -> None:
    """Broadcast, transposed, with steps, from behind: a stride is any number."""
    shape = (3, 5, 48) if dtype == "float16" else (40, 70)
    check(("max", arg(0), arg(1)), [lying(shape, one, dtype), lying(shape, other, dtype)])
