"""Operators of random networks that compute one element at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from onnx import helper

from generated.random_networks import EPSILON, FLOATS, SIGNED, TYPES, UNSIGNED, Array, Maker, NotPossibleError, Value

INF = math.inf
INTEGERS = (*SIGNED, *UNSIGNED)
NUMBERS = (*FLOATS, *INTEGERS)

Function = Callable[[Array], Array]


def erf(x: Array) -> Array:
    """The error function."""
    return np.vectorize(math.erf)(x)


def sigmoid(x: Array) -> Array:
    """The logistic function."""
    return 1 / (1 + np.exp(-x))


SMOOTH: dict[str, tuple[Function, float, float]] = {
    "Abs": (np.abs, -INF, INF), "Acos": (np.arccos, -0.9, 0.9), "Acosh": (np.arccosh, 1.1, 8),
    "Asin": (np.arcsin, -0.9, 0.9), "Asinh": (np.arcsinh, -INF, INF), "Atan": (np.arctan, -INF, INF),
    "Atanh": (np.arctanh, -0.9, 0.9), "Celu": (lambda x: np.maximum(x, np.expm1(x)), -8, INF),
    "Cos": (np.cos, -8, 8), "Cosh": (np.cosh, -3, 3), "Elu": (lambda x: np.where(x < 0, np.expm1(x), x), -8, INF),
    "Erf": (erf, -4, 4), "Exp": (np.exp, -8, 3), "Gelu": (lambda x: x * (1 + erf(x / 2**0.5)) / 2, -8, 8),
    "HardSigmoid": (lambda x: np.clip(0.2 * x + 0.5, 0, 1), -INF, INF),
    "HardSwish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), -INF, INF),
    "LeakyRelu": (lambda x: np.where(x < 0, 0.01 * x, x), -INF, INF), "Log": (np.log, 0.1, INF),
    "Mish": (lambda x: x * np.tanh(np.log1p(np.exp(x))), -8, 8), "Reciprocal": (lambda x: 1 / x, 0.25, INF),
    "Selu": (lambda x: 1.0507 * np.where(x < 0, 1.67326 * np.expm1(x), x), -8, INF), "Sigmoid": (sigmoid, -8, 8),
    "Sin": (np.sin, -8, 8), "Sinh": (np.sinh, -3, 3), "Softplus": (lambda x: np.log1p(np.exp(x)), -8, 8),
    "Softsign": (lambda x: x / (1 + np.abs(x)), -INF, INF), "Sqrt": (np.sqrt, 0.1, INF), "Tan": (np.tan, -1.2, 1.2),
    "Tanh": (np.tanh, -4, 4), "Neg": (np.negative, -INF, INF), "Relu": (lambda x: np.maximum(x, 0), -INF, INF),
}  # fmt: skip
"""Continuous functions of one operand, and where they are applied."""

KEEPS_EXACT = frozenset(("Abs", "Neg", "Relu"))


def unary(m: Maker) -> None:
    """Apply a continuous function of one operand; the interval and the error come from samples of it."""
    name = m.one_of(list(SMOOTH))
    function, low, high = SMOOTH[name]
    x = m.tensor(("float32",) if name == "Celu" else FLOATS)
    if name in KEEPS_EXACT:
        ends = function(np.array([x.low, x.high, min(max(0, x.low), x.high)]))
        m.add(name, [x], x.shape, like=x, low=ends.min(), high=ends.max())
        return
    x = m.within(x, low, high)
    points = np.linspace(x.low, x.high, 400)
    there = function(points)
    slope = np.abs(np.diff(there)).max() / max((x.high - x.low) / 399, 1e-9) if x.high > x.low else 1.0
    epsilon = EPSILON[x.dtype]
    noise = x.noise * slope + 8 * epsilon * (np.abs(there).max() + slope * x.bound)
    attrs = {"approximate": m.one_of(["none", "tanh"])} if name == "Gelu" else {}
    if attrs.get("approximate") == "tanh":
        noise += 1e-3
    m.add(name, [x], x.shape, like=x, low=there.min() - noise, high=there.max() + noise, noise=noise, **attrs)


def steps(m: Maker) -> None:
    """Apply a function that is not continuous, to an exact value."""
    name = m.one_of(
        ["Ceil", "Floor", "Round", "Sign", "ThresholdedRelu", "Shrink", "IsNaN", "IsInf", "Not", "BitwiseNot"]
    )
    if m.special and name == "Sign":
        raise NotPossibleError  # the text says nothing of NaN
    if name == "Not":
        x = m.tensor(("bool",))
        m.add(name, [x], x.shape, like=x)
    elif name == "BitwiseNot":
        x = m.tensor(INTEGERS)
        m.add(name, [x], x.shape, like=x, low=-(2**63), high=2**63)
    else:
        x = m.tensor(FLOATS, exact=True)
        if name in ("IsNaN", "IsInf"):
            m.add(name, [x], x.shape, dtype="bool", low=0, high=1)
        else:
            m.add(name, [x], x.shape, like=x, low=x.low - 1, high=x.high + 1)


def integer_unary(m: Maker) -> None:
    """Apply arithmetic of one operand to whole numbers."""
    x = m.tensor(SIGNED)
    name = m.one_of(["Abs", "Neg", "Relu", "Sign"])
    m.add(name, [x], x.shape, like=x, low=-x.bound, high=x.bound)


def partner(m: Maker, x: Value, exact: bool = True) -> Value:
    """Return a second operand: one that is there, or a new one that broadcasts, or is broadcast to."""
    fits = [v for v in m.values if v.dtype == x.dtype and broadcasts(v.shape, x.shape)]
    if fits and m.chance(0.5):
        return m.one_of(fits)
    shape = [1 if m.chance(0.3) else extent for extent in x.shape]
    if m.chance(0.3):
        shape = shape[int(m.rng.integers(len(shape) + 1)) :]
    elif m.chance(0.2) and math.prod(x.shape) < 2000 and len(shape) < 6:
        shape = [int(m.rng.integers(1, 4)), *shape]
    shape = [
        int(m.rng.integers(2, 6)) if extent == 1 and m.chance(0.15) and math.prod(shape) < 2000 else extent
        for extent in shape
    ]
    if not broadcasts(shape, x.shape):
        shape = []
    return m.draw(x.dtype, shape, exact)


def broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    """Return whether two shapes broadcast, to not too many elements."""
    try:
        return math.prod(np.broadcast_shapes(tuple(a), tuple(b))) <= 40_000
    except ValueError:
        return False


def shape_of(*values: Value) -> tuple[int, ...]:
    """Return the shape that values broadcast to."""
    return np.broadcast_shapes(*(value.shape for value in values))


def arithmetic(m: Maker) -> None:
    """Apply Add, Sub, Mul, Max, Min, Sum, Mean or Div to two values or more."""
    x = m.tensor(NUMBERS)
    y = x if m.chance(0.1) else partner(m, x, x.exact)
    if m.chance(0.5):
        x, y = y, x
    name = m.one_of(["Add", "Sub", "Mul", "Max", "Min"])
    corners = [x.low * y.low, x.low * y.high, x.high * y.low, x.high * y.high]
    low, high = {
        "Add": (x.low + y.low, x.high + y.high),
        "Sub": (x.low - y.high, x.high - y.low),
        "Mul": (min(corners), max(corners)),
        "Max": (max(x.low, y.low), max(x.high, y.high)),
        "Min": (min(x.low, y.low), min(x.high, y.high)),
    }[name]
    noise = {"Mul": x.noise * y.bound + y.noise * x.bound}.get(name, x.noise + y.noise)
    if not x.floating and name in ("Add", "Sub", "Mul"):
        bits = int("".join(filter(str.isdigit, x.dtype)))
        limits = (0, 2**bits) if x.dtype in UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        if low < limits[0] or high >= limits[1]:
            low, high = limits
    if noise and x.floating:
        noise += max(abs(low), abs(high)) * EPSILON[x.dtype]
    m.add(name, [x, y], shape_of(x, y), like=x, low=low, high=high, noise=noise)


def variadic(m: Maker) -> None:
    """Apply Sum, Mean, Max or Min to one to four values."""
    x = m.tensor(FLOATS)
    count = int(m.rng.integers(1, 5))
    values = [x]
    for _ in range(count - 1):
        other = partner(m, x, x.exact)
        if broadcasts(other.shape, shape_of(*values)):
            values.append(other)
    name = m.one_of(["Sum", "Mean", "Max", "Min"])
    total = sum(value.bound for value in values)
    noise = sum(value.noise for value in values)
    if noise or name == "Mean":
        noise += 4 * total * EPSILON[x.dtype]
    m.add(name, values, shape_of(*values), like=x, low=-total, high=total, noise=noise)


def divide(m: Maker) -> None:
    """Apply Div, with a divisor that is not 0."""
    x = m.tensor(NUMBERS)
    if x.floating:
        y = m.within(partner(m, x, False), 0.5, 4)
        noise = x.noise * 2 + y.noise * 4 * x.bound + 8 * x.bound * EPSILON[x.dtype]
        m.add("Div", [x, y], shape_of(x, y), like=x, low=-2 * x.bound, high=2 * x.bound, noise=noise)
        return
    shape = x.shape[-1:]
    y = m.constant(m.rng.integers(1, 6, shape).astype(x.dtype))
    name = m.one_of(["Div", "Mod"])
    m.add(name, [x, y], shape_of(x, y), like=x, low=-x.bound, high=x.bound)


def power(m: Maker) -> None:
    """Apply Pow: small constant exponents, which become products, and others."""
    x = m.tensor(FLOATS)
    if m.chance(0.5):
        exponent = m.one_of([0, 1, 2, 3, 0.5, -1, -0.5, 1.5])
        x = m.within(x, 0.25, 3)
        y = m.constant(np.array(exponent, m.one_of([x.dtype, "float32"]) if x.dtype != "float16" else x.dtype))
    else:
        x = m.within(x, 0.5, 3)
        y = m.within(partner(m, x, False), -2, 2)
    largest = 30.0
    noise = 16 * EPSILON[x.dtype] * largest + (x.noise + y.noise) * largest * 2
    m.add("Pow", [x, y], shape_of(x, y), like=x, low=0, high=largest, noise=noise)


def compare(m: Maker) -> None:
    """Compare exact values."""
    x = m.tensor(NUMBERS, exact=True)
    y = partner(m, x)
    if not y.exact:
        raise NotPossibleError
    name = m.one_of(["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
    m.add(name, [x, y], shape_of(x, y), dtype="bool", low=0, high=1)


def logic(m: Maker) -> None:
    """Apply And, Or or Xor."""
    x = m.tensor(("bool",))
    y = partner(m, x)
    m.add(m.one_of(["And", "Or", "Xor"]), [x, y], shape_of(x, y), like=x)


def bits(m: Maker) -> None:
    """Apply an operation on bits."""
    if m.chance(0.4):
        x = m.tensor(UNSIGNED)
        y = m.constant(m.rng.integers(0, 8, x.shape[-1:]).astype(x.dtype))
        m.add("BitShift", [x, y], shape_of(x, y), like=x, low=0, high=2.0**64, direction=m.one_of(["LEFT", "RIGHT"]))
        return
    x = m.tensor(INTEGERS)
    y = partner(m, x)
    name = m.one_of(["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
    m.add(name, [x, y], shape_of(x, y), like=x, low=-(2.0**63), high=2.0**64)


def where(m: Maker) -> None:
    """Apply Where."""
    x = m.tensor(TYPES)
    y = partner(m, x, x.exact)
    condition = partner(m, Value("", "bool", x.shape, 0, 1))
    if not broadcasts(condition.shape, shape_of(x, y)):
        raise NotPossibleError
    low, high = min(x.low, y.low), max(x.high, y.high)
    noise = max(x.noise, y.noise)
    m.add("Where", [condition, x, y], shape_of(condition, x, y), like=x, low=low, high=high, noise=noise)


def clip(m: Maker) -> None:
    """Apply Clip with bounds that are there or not, constant or not."""
    x = m.tensor(NUMBERS)
    low: str | Value = m.constant(np.array(1, x.dtype)) if m.chance(0.7) else ""
    high: str | Value = m.constant(np.array(3, x.dtype)) if m.chance(0.7) else ""
    if m.chance(0.2):
        high = m.feed(np.array(3, x.dtype), 3, 3)
    m.add("Clip", [x, low, high], x.shape, like=x, low=min(x.low, 1), high=max(x.high, 3))


def prelu(m: Maker) -> None:
    """Apply PRelu with a slope that broadcasts to x."""
    x = m.tensor(("float32",) if m.special else FLOATS)  # onnx's reference, for the others, makes NaN of 0 and infinity
    shape = [1 if m.chance(0.4) else extent for extent in x.shape][int(m.rng.integers(x.rank + 1)) :]
    slope = m.draw(x.dtype, shape, True)
    bound = 3 * x.bound
    noise = 3 * x.noise + (bound * EPSILON[x.dtype] if x.noise else 0)
    m.add("PRelu", [x, slope], x.shape, like=x, low=-bound, high=bound, noise=noise)


def cast(m: Maker) -> None:
    """Cast to another type, one that holds all elements."""
    to = m.one_of(TYPES)
    x = m.tensor(TYPES)
    if to == "bool" and not x.exact:
        raise NotPossibleError
    if to in INTEGERS:
        bits_ = int("".join(filter(str.isdigit, to)))
        low, high = (0, 2.0**bits_ - 1) if to in UNSIGNED else (-(2.0 ** (bits_ - 1)), 2.0 ** (bits_ - 1) - 1)
        if not x.exact or (x.floating and not low <= x.low <= x.high <= high):
            raise NotPossibleError
        low, high = (x.low, x.high) if low <= x.low and x.high <= high else (low, high)
        noise = 0.0
    else:
        low, high, noise = (0, 1, 0.0) if to == "bool" else (x.low, x.high, x.noise)
    if to in FLOATS:
        if max(abs(low), abs(high)) > 60_000:
            raise NotPossibleError
        noise += max(abs(low), abs(high)) * EPSILON[to] if not x.exact or x.bound * 2 >= 2**10 else 0
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    if m.chance(0.2):
        like = m.constant(np.zeros((), to))
        m.add("CastLike", [x, like], x.shape, dtype=to, low=low, high=high, noise=noise)
    else:
        m.add("Cast", [x], x.shape, dtype=to, low=low, high=high, noise=noise, to=kind)
