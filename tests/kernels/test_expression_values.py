"""Every operation of expressions, on every type, compiled and on the host: special values, extremes and a sweep.

A campaign adds the float16 forms of all functions, which are float32's, and longer chains.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Sequence
from typing import Any

import halide as hl
import numpy as np
import pytest

from opbuild.backend.halide.definition import TYPES
from opbuild.backend.halide.expression import compile_expression
from opbuild.operations.evaluation import evaluate_expression
from opbuild.operations.expression import Expression, arg, const
from opbuild.operations.table import OPERATIONS
from support.fuzzing import CAMPAIGN

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
CARRIER = {"bool": "uint8", "float16": "uint16", "uint64": "int64"}
"""Types that Halide's Python buffers do not carry travel as others of their size."""
erf = np.vectorize(math.erf, otypes=[float])


def evaluate(
    cases: Sequence[tuple[Expression, str]], arrays: Sequence[np.ndarray], target: str = "host"
) -> list[np.ndarray]:
    """Compile expressions of one-dimensional arrays as one pipeline, as kernels are compiled, and run it.

    Args:
        cases: Expressions with the types of their results.
        arrays: What they read, all of one length.
        target: What Halide compiles for.
    """
    i = hl.Var("i")
    values = []
    for index, array in enumerate(arrays):
        bits = np.ascontiguousarray(array).view(CARRIER.get(str(array.dtype), array.dtype))
        parameter = hl.ImageParam(TYPES[str(bits.dtype)], 1, f"x{index}")
        parameter.set(hl.Buffer(bits))
        values.append(hl.reinterpret(TYPES[str(array.dtype)], parameter[i]))
    functions, results = [], []
    for number, (expression, dtype) in enumerate(cases):
        value = compile_expression(expression, values, [i])
        assert value.type() == TYPES[dtype], f"{expression} gives {value.type()}, not {dtype}"
        function = hl.Func(f"f{number}")
        function[i] = hl.reinterpret(TYPES[CARRIER.get(dtype, dtype)], value)
        function.vectorize(i, 16, hl.TailStrategy.GuardWithIf)
        functions.append(function)
        results.append(np.zeros(arrays[0].shape, CARRIER.get(dtype, dtype)))
    hl.Pipeline(functions).realize([hl.Buffer(r) for r in results], hl.Target(f"{target}-no_asserts-no_bounds_query"))
    return [r.view(dtype) for r, (_, dtype) in zip(results, cases, strict=True)]


def softplus(x: Any) -> Any:
    """Return log(1 + exp(x))."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)) without overflow."""
    return np.where(x < 0, np.exp(-np.abs(x)), 1.0) / (1 + np.exp(-np.abs(x)))


UNARY: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "erf": erf,
    "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "sigmoid": sigmoid, "softplus": softplus,
    "mish": lambda x: x * np.tanh(softplus(x)), "neg": np.negative, "abs": np.abs, "sign": np.sign,
    "reciprocal": lambda x: 1 / x, "square": np.square, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "floor": np.floor,
    "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "relu": lambda x: np.maximum(x, 0),
    "softsign": lambda x: x / (1 + np.abs(x)), "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * sigmoid(x), "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
}  # fmt: skip
"""Operations of one float, computed by numpy in float64."""

WITH_PARAMETERS: dict[str, tuple[tuple[float, ...], Callable[[Any], Any]]] = {
    "leaky_relu": ((0.25,), lambda x: np.where(x < 0, 0.25 * x, x)),
    "elu": ((0.5,), lambda x: np.where(x < 0, 0.5 * np.expm1(x), x)),
    "celu": ((2.0,), lambda x: np.where(x > 0, x, 2.0 * np.expm1(x / 2.0))),
    "selu": ((1.5, 1.25), lambda x: 1.25 * np.where(x > 0, x, 1.5 * np.expm1(x))),
    "hard_sigmoid": ((0.25, 0.5), lambda x: np.clip(0.25 * x + 0.5, 0, 1)),
    "thresholded_relu": ((0.75,), lambda x: np.where(x > 0.75, x, 0)),
    "clip": ((0.0, 6.0), lambda x: np.clip(x, 0, 6)),
    "saturate": ((0.0, 6.0), lambda x: np.where(x > 0, np.minimum(x, 6), 0)),
    "swiglu": ((1.5, 0.5), lambda x: x * sigmoid(0.5 * x) * 1.5),
    "shrink": ((0.5, 0.25), lambda x: np.where(x < -0.5, x + 0.25, np.where(x > 0.5, x - 0.25, 0))),
}

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "floor_div": lambda a, b: np.floor(a / b),
    "pow": np.power, "mod": np.mod, "fmod": np.fmod, "max": np.maximum, "min": np.minimum, "atan2": np.arctan2,
    "squared_difference": lambda a, b: (a - b) ** 2, "prelu": lambda x, s: np.where(x < 0, x * s, x),
}  # fmt: skip

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal,
}  # fmt: skip
CLASSES: dict[str, Callable[[Any], Any]] = {"is_nan": np.isnan, "is_inf": np.isinf, "is_finite": np.isfinite}
LOGIC: dict[str, Callable[..., Any]] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}

TOLERANCE = {"float16": (1e-3, 1e-7), "float32": (6e-7, 1.5e-43), "float64": (4e-14, 0.0)}
"""Relative error, and absolute error where the result is smaller than any normal number."""
LOOSER = {
    "erf": 3e-7, "tanh": 4e-7, "gelu": 2e-6, "gelu_tanh": 2e-6, "sin": 2e-7, "cos": 2e-7, "tan": 3e-7,
    "atan": 2e-7, "asin": 2e-7,
    "acos": 3e-7, "pow": 1e-40, "hard_swish": 4e-7, "hard_sigmoid": 1e-7, "acosh": 3e-7, "atan2": 2e-7,
    "mod": 1e-30, "shrink": 1e-7, "mish": 1e-42, "sigmoid": 4.2e-39, "silu": 4e-37, "swiglu": 2e-36,
}  # fmt: skip
"""Absolute error allowed besides, for values of the order of 1 (times the result, if it is greater)."""


def specials(dtype: str) -> np.ndarray:
    """Return values at which functions go wrong."""
    info = np.finfo(dtype)
    tiny = [float(info.tiny), float(info.smallest_subnormal), float(info.max), float(info.eps)]
    near = [0.5, 1, 1.5, 2, 2.5, 3, 6, 7.9, 0.35, 0.7, 88.3, 88.8, 89.2, 87.4, 103.5, 104, 150, 700, 710, 745]
    values = [0.0, *tiny, *near, math.inf]
    return np.array([*values, *(-v for v in values), math.nan], dtype=dtype)


def sweep(dtype: str) -> np.ndarray:
    """Return special values and a few thousand others of every size."""
    random = np.random.default_rng(7)
    wide = np.exp(random.uniform(-30, 9, 2000)) * random.choice([-1, 1], 2000)
    return np.concatenate([specials(dtype), random.normal(0, 3, 3001), wide]).astype(dtype)


def close(name: str, dtype: str, got: np.ndarray, expected: np.ndarray, inputs: Sequence[np.ndarray]) -> None:
    """Assert that results agree, NaN for NaN and infinity for infinity."""
    with np.errstate(all="ignore"):
        rounded = expected.astype(dtype)
        relative, absolute = TOLERANCE[dtype]
        extra = LOOSER.get(name, 0.0) * (1e-8 if dtype == "float64" else 1e3 if dtype == "float16" else 1)
        bound = relative * np.abs(expected) + absolute + extra * np.maximum(1, np.abs(expected))
        good = (np.isnan(got) & np.isnan(rounded)) | (got == rounded) | (np.abs(got.astype("f8") - expected) <= bound)
    bad = np.flatnonzero(~good)
    assert not bad.size, f"{name} {dtype}: {bad.size} wrong: " + "; ".join(
        f"{[float(x[k]) for x in inputs]} -> {got[k]!r}, not {expected[k]!r}" for k in bad[:6]
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_one_float_agree_with_numpy_everywhere(dtype: str) -> None:
    """NaN, infinities, zeros, denormals, overflow and a sweep: what numpy gives in float64, to the stated accuracy."""
    x = sweep(dtype)
    cases = [((name, arg(0)), dtype) for name in UNARY]
    cases += [
        ((name, arg(0), *(const(p, dtype) for p in given)), dtype) for name, (given, _) in WITH_PARAMETERS.items()
    ]
    if dtype == "float16" and not CAMPAIGN:
        cases = cases[::3]  # they are float32's, between conversions
    references = {**UNARY, **{name: f for name, (_, f) in WITH_PARAMETERS.items()}}
    for (expression, _), got in zip(cases, evaluate(cases, [x]), strict=True):
        with np.errstate(all="ignore"):
            name, expected = expression[0], references[expression[0]](x.astype("f8"))
            close(name, dtype, evaluate_expression(expression, [x]), expected, [x])
            close(name, dtype, got, expected, [x])


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_two_floats_agree_with_numpy_everywhere(dtype: str) -> None:
    """All pairs of special values, and random pairs."""
    random = np.random.default_rng(3)
    s = specials(dtype)
    a, b = (np.ravel(v) for v in np.meshgrid(s, s))
    a = np.concatenate([a, random.normal(0, 3, 999)]).astype(dtype)
    b = np.concatenate([b, random.normal(0, 3, 999)]).astype(dtype)
    left_out = {"float64": ("mod", "fmod"), "float16": () if CAMPAIGN else ("pow", "atan2")}.get(dtype, ())
    names = [name for name in BINARY if name not in left_out]
    cases = [((name, arg(0), arg(1)), dtype) for name in names]
    for (expression, _), got in zip(cases, evaluate(cases, [a, b]), strict=True):
        name = expression[0]
        with np.errstate(all="ignore"):
            expected = BINARY[name](a.astype("f8"), b.astype("f8"))
            if name == "floor_div":
                expected = np.floor(np.divide(a, b, dtype="f8" if dtype == "float64" else "f4")).astype("f8")
            skip = np.zeros(a.shape, bool)
            if name == "floor_div":  # of a quotient that is rounded, and may be rounded up to the next number
                skip = np.abs(a.astype("f8") / b.astype("f8")) > 1e6
        for found in (got, evaluate_expression(expression, [a, b])):
            close(name, dtype, np.where(skip, 0, found).astype(dtype), np.where(skip, 0, expected), [a, b])
    cases = [((name, arg(0), arg(1)), "bool") for name in COMPARISONS]
    for (expression, _), got in zip(cases, evaluate(cases, [a, b]), strict=True):
        np.testing.assert_array_equal(got, COMPARISONS[expression[0]](a, b), err_msg=f"{expression[0]} {dtype}")
    cases = [((name, arg(0)), "bool") for name in CLASSES]
    for (expression, _), got in zip(cases, evaluate(cases, [a]), strict=True):
        np.testing.assert_array_equal(got, CLASSES[expression[0]](a), err_msg=f"{expression[0]} {dtype}")


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_follows_a_function_in_a_chain_still_sees_nan_and_infinity(dtype: str) -> None:
    """The compiler must not conclude from a function that its result is neither NaN nor infinite."""
    x = specials(dtype)
    # float16 goes through float32's functions; what could lose a NaN there is the conversion.
    names = [*UNARY] if dtype != "float16" else ["exp", "log", "sqrt", "abs", "floor", "relu", "tanh"]
    plain = evaluate([((name, arg(0)), dtype) for name in names], [x])
    followers: dict[str, tuple[tuple[Expression, ...], str, Callable[[Any], Any]]] = {
        **{name: ((), "bool", reference) for name, reference in CLASSES.items()},
        "max": ((const(0.0, dtype),), dtype, lambda value: np.maximum(value, 0)),
        "relu": ((), dtype, lambda value: np.maximum(value, 0)),
    }
    for turn, (follower, (others, result, reference)) in enumerate(followers.items()):
        # In the suite, two of the five follow each function.
        mine = [at for at in range(len(names)) if CAMPAIGN or dtype == "float16" or (at + turn) % 5 in (0, 2)]
        results = evaluate([((follower, (names[at], arg(0)), *others), result) for at in mine], [x])
        for at, got in zip(mine, results, strict=True):
            np.testing.assert_array_equal(got, reference(plain[at]), err_msg=f"{follower} of {names[at]} {dtype}")


@pytest.mark.parametrize("target", ["host", "x86-64-linux"])
def test_exponentials_keep_their_accuracy_in_the_tails_with_fused_multiply_add_and_without(target: str) -> None:
    """3e-7 of the result: one difference in place of two in the reduction would be 4e-7 off, or 4e-6 if not fused."""
    if target != "host" and platform.machine() != "x86_64":
        pytest.skip("the other target is of another architecture")
    x = np.linspace(-87.3, 88.7, 300_007, dtype=np.float32)
    references = {name: UNARY[name] for name in ("exp", "expm1", "sigmoid", "sinh", "cosh")}
    cases = [((name, arg(0)), "float32") for name in references]
    for (name, reference), got in zip(references.items(), evaluate(cases, [x], target), strict=True):
        expected = reference(x.astype("f8"))
        assert np.abs(got / expected - 1).max() < 3e-7, name


def integers(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of integers: all pairs of extremes, and random ones."""
    info = np.iinfo(dtype)
    edges = np.array([info.min, info.min + 1, -3, -2, -1, 0, 1, 2, 3, 7, info.max - 1, info.max], object)
    edges = edges[[info.min <= e <= info.max for e in edges]].astype(dtype)
    random = np.random.default_rng(5)
    a, b = (np.ravel(v) for v in np.meshgrid(edges, edges))
    small = random.integers(max(-9, info.min), 9, (2, 300)).astype(dtype)
    large = random.integers(info.min, info.max, (2, 300), dtype=dtype, endpoint=True)
    return np.concatenate([a, small[0], large[0]]), np.concatenate([b, small[1], large[1]])


def truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Divide integers as C does, exactly, 0 for a division by zero."""
    wide = [
        0 if y == 0 else abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1)
        for x, y in zip(a, b, strict=True)
    ]
    return np.array([w % 2 ** (8 * a.itemsize) for w in wide], object).astype(np.uint64).astype(a.dtype)


def shifted(a: np.ndarray, b: np.ndarray, left: bool) -> np.ndarray:
    """Shift integers, exactly; by the width or more everything goes."""
    bits = 8 * a.itemsize
    wide = [
        (0 if left or x >= 0 else -1) if not 0 <= y < bits else int(x) << int(y) if left else int(x) >> int(y)
        for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    return np.array([w % 2**bits for w in wide], object).astype(np.uint64).astype(a.dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_operations_wrap_truncate_and_never_trap(dtype: str) -> None:
    """Overflow wraps, Div truncates, Mod has the divisor's sign, division by zero gives 0 and no signal."""
    a, b = integers(dtype)
    small = (np.abs(b.astype(object)) % 7).astype(dtype)
    with np.errstate(all="ignore"):
        binary = {
            "add": a + b, "sub": a - b, "mul": a * b, "max": np.maximum(a, b), "min": np.minimum(a, b),
            "div": truncated(a, b),
            "mod": np.where(b == 0, 0, np.mod(a, b)).astype(dtype),
            "fmod": np.where(b == 0, 0, np.fmod(a, b)).astype(dtype),
            "floor_div": np.where(b == 0, 0, a // np.where(b == 0, 1, b)).astype(dtype),
            "bit_and": a & b, "bit_or": a | b,
            "bit_xor": a ^ b, "shift_left": shifted(a, b, True), "shift_right": shifted(a, b, False),
            "squared_difference": (a - b) * (a - b),
        }  # fmt: skip
        unary = {
            "neg": -a,
            "abs": np.abs(a),
            "sign": np.sign(a),
            "square": a * a,
            "relu": np.maximum(a, 0),
            "bit_not": ~a,
        }
        powers = a**small
    cases: list[tuple[Expression, str]] = [((name, arg(0), arg(1)), dtype) for name in binary]
    cases += [((name, arg(0)), dtype) for name in unary] + [(("pow", arg(0), arg(2)), dtype)]
    cases += [((name, arg(0), arg(1)), "bool") for name in COMPARISONS]
    expected = [*binary.values(), *unary.values(), powers, *(f(a, b) for f in COMPARISONS.values())]
    for (expression, _), got, want in zip(cases, evaluate(cases, [a, b, small]), expected, strict=True):
        bad = np.flatnonzero((got != want) | (evaluate_expression(expression, [a, b, small]) != want))
        assert not bad.size, f"{expression} {dtype}: " + "; ".join(
            f"{a[k]}, {b[k]} -> {got[k]}, not {want[k]}" for k in bad[:5]
        )


def test_truth_values_come_as_bytes_and_leave_as_bytes() -> None:
    """Logic, comparisons and Where mix bools from buffers with bools computed inside an expression."""
    a = np.array([False, False, True, True] * 5)
    b = np.array([False, True] * 10)
    x = np.linspace(-1, 1, 20).astype(np.float32)
    less = ("less", arg(2), const(0.25))
    cases: list[tuple[Expression, str]] = [((name, arg(0), arg(1)), "bool") for name in LOGIC]
    cases += [(("not", arg(0)), "bool"), (("and", arg(0), less), "bool"), (("where", arg(0), less, arg(1)), "bool")]
    cases += [(("where", less, arg(2), const(3.0)), "float32"), (("equal", less, arg(0)), "bool"), (less, "bool")]
    cases += [
        (("cast", "float32", arg(0)), "float32"),
        (("cast", "int64", less), "int64"),
        (("cast", "bool", arg(2)), "bool"),
    ]
    expected = [f(a, b) for f in LOGIC.values()]
    expected += [~a, a & (x < 0.25), np.where(a, x < 0.25, b), np.where(x < 0.25, x, 3), (x < 0.25) == a, x < 0.25]
    expected += [a.astype("f4"), (x < 0.25).astype("i8"), x != 0]
    for (expression, _), got, want in zip(cases, evaluate(cases, [a, b, x]), expected, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=str(expression))
        np.testing.assert_array_equal(evaluate_expression(expression, [a, b, x]), want, err_msg=str(expression))


@pytest.mark.each
@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS])
def test_cast_gives_what_numpy_gives_where_that_is_defined(source: str) -> None:
    """Floats to integers toward zero, integers to smaller ones by wrapping, anything to bool by being nonzero."""
    if source in FLOATS:
        x = np.array([0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.9, 100.99, 3e4, 65519, 1e-7, 6e-8, math.nan, math.inf], source)
    else:
        x = integers(source)[0]
    targets = (*FLOATS, *INTEGERS, "bool")
    results = evaluate([(("cast", target, arg(0)), target) for target in targets], [x])
    for target, got in zip(targets, results, strict=True):
        defined = np.ones(x.shape, bool)
        if source in FLOATS and target in INTEGERS:
            info = np.iinfo(target)
            defined = np.isfinite(x) & (np.trunc(x.astype("f8")) >= info.min) & (np.trunc(x.astype("f8")) <= info.max)
        with np.errstate(all="ignore"):
            want = x.astype(target)
            if target == "float16" and source != "float32":
                want = x.astype("f4").astype("f2")
        np.testing.assert_array_equal(got[defined], want[defined], err_msg=f"{source} to {target}")


def test_powers_with_a_known_exponent_equal_the_general_ones() -> None:
    """The short forms for 2, 3, 4, -1 and 0.5 keep the special values of pow."""
    x = specials("float32")
    exponents = (2.0, 3.0, 4.0, -1.0, 0.5, 0.0, 1.0, -0.5)
    for exponent, got in zip(
        exponents, evaluate([(("pow", arg(0), const(p)), "float32") for p in exponents], [x]), strict=True
    ):
        with np.errstate(all="ignore"):
            close("pow", "float32", got, np.power(x.astype("f8"), np.full(x.shape, exponent)), [x])


def test_fusing_changes_no_bit() -> None:
    """A chain computed at once equals its operators one by one, in every float type."""
    for dtype in FLOATS:
        x = sweep(dtype)
        chain = ("mul", arg(0), ("sigmoid", ("add", ("mul", arg(0), const(1.7, dtype)), const(0.3, dtype))))
        (fused,) = evaluate([(chain, dtype)], [x])
        (product,) = evaluate([(("mul", arg(0), const(1.7, dtype)), dtype)], [x])
        (total,) = evaluate([(("add", arg(0), const(0.3, dtype)), dtype)], [product])
        (gate,) = evaluate([(("sigmoid", arg(0)), dtype)], [total])
        (steps,) = evaluate([(("mul", arg(0), arg(1)), dtype)], [x, gate])
        np.testing.assert_array_equal(fused, steps)


def test_every_operation_is_tested_here() -> None:
    """A new operation needs a test."""
    tested = {*UNARY, *WITH_PARAMETERS, *BINARY, *COMPARISONS, *CLASSES, *LOGIC, "not", "where"}
    tested |= {"bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right"}
    assert tested == set(OPERATIONS)


@pytest.mark.parametrize("dtype", ["float16", *(["float32", "float64"] if CAMPAIGN else [])])
def test_a_tower_of_functions_compiles_soon(dtype: str) -> None:
    """``clip((1.5 x + 0.5) ** -0.5)`` of float16 took minutes, as did two exponentials below a power.

    The compiler looks at a tree, which grew with each operation by as often as the operation mentions its operand.
    """
    one, half = const(1.5, dtype), const(0.5, dtype)
    tower: Expression = ("pow", ("add", ("mul", arg(0), one), half), const(-0.5, dtype))
    floors = ("exp", "sigmoid", "gelu", "sin", "softplus", "mish", "tanh", "erf")
    for operation in floors * 2 if CAMPAIGN else floors[:5]:
        tower = ("clip", (operation, tower), const(0.1, dtype), one)
    (got,) = evaluate([(tower, dtype)], [np.linspace(0, 4, 33).astype(dtype)])
    assert got.dtype == dtype
    assert ((got >= np.array(0.1, dtype)) & (got <= 1.5)).all()
