"""Conversions between types where they meet arithmetic, at levels of instructions that this machine runs.

The suite takes the least level and the machine's own, and every other function; a campaign takes all.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from opbuild.operations.evaluation import cast as host_cast
from opbuild.operations.expression import Expression, arg, const
from opbuild.operations.table import OPERATIONS
from opbuild.target.host import host_level
from support.exact_arithmetic import FLOATS, INTEGERS, Array, cast
from support.expression_trees import (
    LENGTH,
    PARAMETERS,
    Reference,
    Tree,
    compiled,
    differences,
    levels,
    special_floats,
    values,
)
from support.fuzzing import CAMPAIGN

LEVELS = {name: level for name, level in levels().items() if CAMPAIGN or name in ("x86-64-v2", host_level().name)}
LARGE = frozenset(("acosh", "asinh", "atan2", "atanh", "gelu_tanh", "mish", "pow", "sinh", "softplus", "tan"))
"""Functions that take the compiler long; their conversions are the same."""


def floats(dtype: str) -> Array:
    """Return floats of every size, those at which integer types end among them."""
    random = np.random.default_rng(11)
    some = np.concatenate([special_floats(dtype), [-9.7, -2.0, -1.5, 3e9, -3e9], random.normal(0, 50, LENGTH)])
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(some[:LENGTH].astype(dtype))


def check(trees: list[Tree], level: str) -> None:
    """Assert that trees give at one level what their operations give one by one."""
    for one, got in zip(trees, compiled(trees, LEVELS[level]), strict=True):
        expected = Reference(LEVELS[level]).values(one)[one.expression]
        wrong = differences(got, expected)
        assert not wrong.size, (
            f"{one.expression} at {level}: {one.args[0][wrong]} -> {got[wrong]}, not {expected[wrong]}"
        )


@pytest.mark.parametrize(
    ("source", "level"), [*(("float32", level) for level in LEVELS), ("float64", host_level().name)]
)
def test_arithmetic_after_a_conversion_sees_the_converted_integer(source: str, level: str) -> None:
    """Cast(-9.7) squared was 1 in int32 for AVX-512 and 0 in int16 everywhere: two conversions had become one."""
    x, trees = floats(source), []
    for dtype in INTEGERS:
        whole = ("cast", dtype, arg(0))
        trees += [Tree((name, whole), (x,)) for name in ("square", "neg")]
        trees += [Tree((name, whole, const(3, dtype)), (x,)) for name in ("add", "less")]
        trees += [Tree(("cast", to, whole), (x,)) for to in ("uint8", "int64")]
    check(trees, level)


@pytest.mark.parametrize("level", LEVELS)
def test_what_an_integer_cannot_hold_is_the_same_everywhere(level: str) -> None:
    """NaN, infinities and numbers out of range were converted otherwise by each level, and by the host."""
    trees = [Tree(("cast", dtype, arg(0)), (floats(source),)) for source in FLOATS for dtype in INTEGERS]
    check(trees, level)
    for one in trees:
        expected = cast(one.args[0], one.expression[1])
        np.testing.assert_array_equal(host_cast(one.args[0], one.expression[1]), expected, err_msg=str(one.expression))


def test_conversions_out_of_range_are_numpys() -> None:
    """Where ONNX leaves it open, kernels give what numpy gives on a machine without AVX-512's conversions."""
    x = np.array([-9.7, -129, 300, 40000, 3e9, -3e9, np.nan, np.inf, -np.inf], np.float32)
    least, long = -(2**31), -(2**63)
    wanted = {
        "int8": [-9, 127, 44, 64, 0, 0, 0, 0, 0], "uint8": [247, 127, 44, 64, 0, 0, 0, 0, 0],
        "int16": [-9, -129, 300, -25536, 0, 0, 0, 0, 0], "int32": [-9, -129, 300, 40000, *[least] * 5],
        "uint32": [2**32 - 9, 2**32 - 129, 300, 40000, 3 * 10**9, 2**31, 2**31, 0, 2**31],
        "int64": [-9, -129, 300, 40000, 3 * 10**9, -3 * 10**9, long, long, long],
        "uint64": [2**64 - 9, 2**64 - 129, 300, 40000, 3 * 10**9, 2**64 - 3 * 10**9, 2**63, 0, 2**63],
    }  # fmt: skip
    for dtype, numbers in wanted.items():
        np.testing.assert_array_equal(host_cast(x, dtype), np.array(numbers, dtype), err_msg=dtype)


@pytest.mark.parametrize("level", LEVELS)
def test_float16_keeps_nan_at_every_level(level: str) -> None:
    """Without F16C's instructions a NaN became infinity when it was rounded to float16."""
    x = floats("float16")
    expressions: list[Expression] = [("add", arg(0), arg(0)), ("sub", arg(0), arg(0)), ("is_nan", ("sqrt", arg(0)))]
    check([Tree(e, (x,)) for e in expressions] + [Tree(("cast", "float16", arg(0)), (floats("float32"),))], level)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "refined"), [("float16", False), ("float32", True)])
def test_what_is_converted_to_a_wider_type_was_rounded_to_its_own(dtype: str, refined: bool) -> None:
    """A value of the model has its type's digits and no more, although functions are computed in a wider type."""
    x = floats(dtype)
    names = {
        each.name
        for each in OPERATIONS.values()
        if (each.precise if refined else each.kinds in ("floats", "numbers") and not each.predicate)
    }
    plain = [Tree((name, *operands(name, dtype)), (x, x[::-1].copy()), refined) for name in sorted(names)]
    plain = [one for one in plain if one.expression[0] not in LARGE]
    plain = plain if CAMPAIGN else plain[::2]
    assert len(plain) > 5
    wide = [Tree(("cast", "float64", one.expression), one.args, refined) for one in plain]
    got = compiled(plain + wide, LEVELS[host_level().name])
    for one, narrow, widened in zip(plain, got, got[len(plain) :], strict=False):
        assert not differences(widened, narrow.astype(np.float64)).size, one.expression


def operands(name: str, dtype: str) -> list[Expression]:
    """Return an operation's operands: parameters are literals."""
    parameters = [const(value, dtype) for value in PARAMETERS.get(name, ())]
    return [*(arg(index % 2) for index in range(OPERATIONS[name].arity - len(parameters))), *parameters]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_greatest_and_the_least_integer_may_be_literals(dtype: str) -> None:
    """Halide refused to divide by the greatest number, and to compare it with -1: such a model failed to compile."""
    info, x = np.iinfo(dtype), values(dtype, Random(3))
    names = ("div", "mod", "fmod", "floor_div", "pow", "equal")
    trees = [Tree((name, arg(0), const(c, dtype)), (x,)) for name in names for c in (info.min, info.max, 0)]
    trees += [Tree((name, const(c, dtype), arg(0)), (x,)) for name in names for c in (info.min, info.max)]
    check(trees, host_level().name)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_float_may_be_divided_by_a_literal_zero(dtype: str) -> None:
    """Infinity or NaN; Halide refused it, also where it found out by itself that a divisor is always 0."""
    x, never = floats(dtype), ("and", ("less", arg(0), arg(0)), const(False, "bool"))
    trees = [Tree((name, arg(0), const(c, dtype)), (x,)) for name in ("div", "floor_div") for c in (0.0, -0.0)]
    check([*trees, Tree(("div", arg(0), ("cast", dtype, never)), (x,))], host_level().name)


@pytest.mark.parametrize("level", LEVELS)
def test_what_overflows_is_what_the_next_operation_sees(level: str) -> None:
    """A model divided by a shifted integer and died of SIGFPE: Halide tested the number before the shift for 0."""
    random = Random(5)
    for dtype in ("int32", "int64", "uint32", "uint64"):
        x = values(dtype, random)
        x[:4] = [2**61 % 2 ** (8 * x.itemsize - 3), np.iinfo(dtype).max, np.iinfo(dtype).min, 0]
        moved, more = ("shift_left", arg(0), const(3, dtype)), ("add", arg(0), const(1, dtype))
        pairs: list[Expression] = [("div", arg(0), moved), ("sign", moved), ("floor_div", more, const(2, dtype))]
        pairs += [
            ("less", arg(0), more),
            ("shift_right", more, const(1, dtype)),
            ("equal", ("mul", arg(0), moved), arg(0)),
        ]
        check([Tree(e, (x,)) for e in pairs], level)


def test_zeros_of_both_signs_may_be_literals_of_one_expression() -> None:
    """Halide took them for equal and used one for both."""
    x = floats("float32")
    trees = [Tree(("where", ("less", arg(0), const(0.0)), const(-0.0), const(0.0)), (x,))]
    trees += [Tree(("div", ("relu", arg(0)), ("mul", ("relu", arg(0)), const(-0.0))), (x,))]
    check(trees, host_level().name)
