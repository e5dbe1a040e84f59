"""Calls of operators that compute element by element."""

from __future__ import annotations

from typing import Any

import torch

from generated.aten.drawing import ANY, FLOATS, INTEGERS, NUMBERS, Call, Draw, calls


@calls("abs.default", "ceil.default", "floor.default", "neg.default", "relu.default", "round.default", "sign.default",
       "sgn.default", "trunc.default", "isnan.default", "isinf.default", "logical_not.default", "clone.default",
       "alias.default", "detach.default", "lift_fresh_copy.default", "contiguous.default")  # fmt: skip
def _unary(draw: Draw) -> Call:
    return (draw.tensor(draw.shape(), draw.one_of(ANY)),), {}


@calls("acos.default", "acosh.default", "asin.default", "asinh.default", "atan.default", "atanh.default", "cos.default",
       "cosh.default", "erf.default", "exp.default", "log.default", "reciprocal.default", "sigmoid.default",
       "sin.default", "sinh.default", "sqrt.default", "tan.default", "tanh.default", "rsqrt.default", "log1p.default",
       "expm1.default", "log2.default", "log10.default", "exp2.default")  # fmt: skip
def _floating(draw: Draw) -> Call:
    dtype = draw.one_of((*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool))
    return (draw.tensor(draw.shape(), dtype, special=0.3 if dtype.is_floating_point else 0.0),), {}


@calls("gelu.default")
def _gelu(draw: Draw) -> Call:
    x = draw.tensor(draw.shape(), draw.one_of(FLOATS))
    x = torch.where(x == float("inf"), 4, x)  # of which torch makes NaN in float32, by oneDNN, and infinity in float64
    return (x,), {"approximate": draw.choice(("none", "tanh"))}


@calls("silu.default", "hardswish.default", "hardsigmoid.default", "mish.default")
def _activation(draw: Draw) -> Call:
    return (draw.tensor(draw.shape(), draw.one_of(FLOATS)),), {}


@calls("leaky_relu.default")
def _leaky_relu(draw: Draw) -> Call:
    return (draw.tensor(draw.shape(), draw.one_of(FLOATS)), draw.choice((0.01, 0.0, 1, -0.5, 2.0))), {}


@calls("elu.default")
def _elu(draw: Draw) -> Call:
    scales = draw.choice(((), (1.0,), (0.5, 1.5), (2, 1, 0.5), (1.67, 1.05, 1), (-1.0, 1.0)))
    return (draw.tensor(draw.shape(), draw.one_of(FLOATS)), *scales), {}


@calls("softplus.default")
def _softplus(draw: Draw) -> Call:
    settings = draw.choice(((), (2,), (0.5, 1), (-1.0, 3), (1, 0), (3.0, 20)))
    return (draw.tensor(draw.shape(), draw.one_of(FLOATS), spread=20), *settings), {}


@calls("hardtanh.default")
def _hardtanh(draw: Draw) -> Call:
    limits = draw.choice(((), (-2.0, 0.5), (0, 6), (1.0, 1.0)))
    return (draw.tensor(draw.shape(), draw.one_of((*FLOATS, torch.int64))), *limits), {}


@calls("clamp.default")
def _clamp(draw: Draw) -> Call:
    low, high = draw.choice((None, -1, 0.5, -1.5, 2)), draw.choice((None, 1, -2.5, 2, float("inf"), float("nan")))
    return (draw.tensor(draw.shape(), draw.one_of(NUMBERS)), low, high), {}


@calls("clamp.Tensor")
def _clamp_by_tensors(draw: Draw) -> Call:
    shape, dtype = draw.shape(), draw.one_of(NUMBERS)
    bounds = [draw.tensor(draw.beside(shape), draw.choice((dtype, torch.float32))) for _ in range(2)]
    missing = draw.randrange(3)
    return (draw.tensor(shape, dtype), *(None if each == missing else bounds[each] for each in range(2))), {}


def _partner(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype, others: Any = NUMBERS) -> torch.Tensor:
    """Return a second operand, of the same type or another; one without dimensions gives way."""
    chosen = dtype if draw.some(0.6) else draw.one_of(others)
    return draw.tensor(() if draw.some(0.2) else draw.beside(shape), chosen)


@calls("eq.Tensor", "ne.Tensor", "lt.Tensor", "le.Tensor", "gt.Tensor", "ge.Tensor", "logical_and.default",
       "logical_or.default", "logical_xor.default", "mul.Tensor", "maximum.default", "minimum.default")  # fmt: skip
def _binary(draw: Draw) -> Call:
    shape, dtype = draw.shape(), draw.one_of(ANY)
    return (draw.tensor(shape, dtype), _partner(draw, shape, dtype, ANY)), {}


@calls("eq.Scalar", "ne.Scalar", "lt.Scalar", "le.Scalar", "gt.Scalar", "ge.Scalar", "mul.Scalar")
def _by_number(draw: Draw) -> Call:
    return (draw.tensor(draw.shape(), draw.one_of(ANY)), draw.number()), {}


@calls("add.Tensor", "sub.Tensor", "rsub.Tensor")
def _sum(draw: Draw) -> Call:
    shape, dtype = draw.shape(), draw.one_of(ANY)
    floats = dtype.is_floating_point
    alpha = draw.choice(({}, {}, {"alpha": 2}, {"alpha": -1}, {"alpha": 0}, {"alpha": 0.5} if floats else {}))
    return (draw.tensor(shape, dtype), _partner(draw, shape, dtype)), alpha


@calls("add.Scalar", "sub.Scalar", "rsub.Scalar")
def _sum_with_number(draw: Draw) -> Call:
    dtype = draw.one_of(ANY)
    alpha = draw.choice(((), (), (2,), (-1,), (0,), (0.5,)))
    return (draw.tensor(draw.shape(), dtype), draw.number(), *alpha), {}


@calls("div.Tensor", "fmax.default", "fmin.default")
def _quotient(draw: Draw) -> Call:
    shape, dtype = draw.shape(), draw.one_of(ANY)
    return (draw.tensor(shape, dtype), _partner(draw, shape, dtype)), {}


@calls("div.Scalar")
def _quotient_by_number(draw: Draw) -> Call:
    return (draw.tensor(draw.shape(), draw.one_of(ANY)), draw.number()), {}


@calls("ldexp.Tensor")
def _ldexp(draw: Draw) -> Call:
    shape = draw.shape()
    exponent = draw.choice((torch.int32, torch.int64, torch.float32))
    return (draw.tensor(shape, draw.one_of(FLOATS)), draw.plain(draw.beside(shape), exponent, 3)), {}


def _divisor(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    found = draw.tensor(shape, dtype, 0.1)
    return found if dtype.is_floating_point or draw.some(0.1) else torch.where(found == 0, 3, found).to(dtype)


_ROUNDINGS = (None, "trunc", "floor")


@calls("div.Tensor_mode", "floor_divide.default", "remainder.Tensor", "fmod.Tensor")
def _whole_division(draw: Draw) -> Call:
    shape, dtype = draw.shape(), draw.one_of(NUMBERS)
    return (draw.tensor(shape, dtype), _divisor(draw, draw.beside(shape), draw.choice((dtype, dtype, torch.int64)))), {
        "rounding_mode": draw.choice(_ROUNDINGS)
    }


@calls("div.Scalar_mode", "floor_divide.Scalar", "remainder.Scalar", "fmod.Scalar")
def _whole_division_by_number(draw: Draw) -> Call:
    number = draw.choice((3, -3, 2, -1, 1, 0.7, -1.5, 0.5, float("inf"), 7))
    return (draw.tensor(draw.shape(), draw.one_of(NUMBERS)), number), {"rounding_mode": draw.choice(_ROUNDINGS)}


@calls("remainder.Scalar_Tensor")
def _remainder_of_number(draw: Draw) -> Call:
    return (draw.choice((7, -7, 2.5, -0.5, 0)), _divisor(draw, draw.shape(), draw.one_of(NUMBERS))), {}


@calls("pow.Tensor_Scalar")
def _power(draw: Draw) -> Call:
    """A half as an exponent is a root, but on torch's CPU, of float16 alone: there -inf and -0 have powers."""
    dtype = draw.one_of(NUMBERS)
    exponents = (2, -1, 3, 0, 1, 2.5, -2, 1 / 3, float("inf"), 7)
    halves = () if dtype is torch.float16 else (0.5, -0.5)
    return (draw.tensor(draw.shape(), dtype), draw.choice((*exponents, *halves))), {}


@calls("pow.Tensor_Tensor")
def _power_by_tensor(draw: Draw) -> Call:
    shape, dtype = draw.shape(), draw.one_of(FLOATS)
    return (draw.tensor(shape, dtype), draw.tensor(draw.beside(shape), draw.choice((dtype, torch.int64)), spread=2)), {}


@calls("pow.Scalar")
def _power_of_number(draw: Draw) -> Call:
    return (draw.choice((2, 0.5, -1.5, 0, 1, 10)), draw.tensor(draw.shape(), draw.one_of(NUMBERS))), {}


@calls("prims.fma.default")
def _fma(draw: Draw) -> Call:
    shape = draw.shape()
    return tuple(draw.tensor(shape) for _ in range(3)), {}


@calls("bitwise_not.default")
def _bits(draw: Draw) -> Call:
    return (draw.tensor(draw.shape(), draw.one_of((*INTEGERS, torch.bool))),), {}


@calls("bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor")
def _bits_of_two(draw: Draw) -> Call:
    shape, kinds = draw.shape(), (*INTEGERS, torch.bool)
    dtype = draw.one_of(kinds)
    return (draw.tensor(shape, dtype), _partner(draw, shape, dtype, kinds)), {}


@calls("bitwise_and.Scalar", "bitwise_or.Scalar", "bitwise_xor.Scalar")
def _bits_with_number(draw: Draw) -> Call:
    return (draw.tensor(draw.shape(), draw.one_of((*INTEGERS, torch.bool))), draw.whole()), {}


@calls("where.ScalarOther")
def _where_number(draw: Draw) -> Call:
    shape = draw.shape()
    return (draw.tensor(shape, torch.bool), draw.tensor(draw.beside(shape), draw.one_of(ANY)), draw.number()), {}


@calls("where.ScalarSelf")
def _where_number_first(draw: Draw) -> Call:
    (condition, x, number), _ = _where_number(draw)
    return (condition, number, x), {}


@calls("where.Scalar")
def _where_numbers(draw: Draw) -> Call:
    return (draw.tensor(draw.shape(), torch.bool), draw.number(), draw.number()), {}


@calls("where.self")
def _where(draw: Draw) -> Call:
    shape, dtype = draw.shape(), draw.one_of(ANY)
    return (draw.tensor(shape, torch.bool), draw.tensor(draw.beside(shape), dtype), _partner(draw, shape, dtype)), {}


@calls("masked_fill.Scalar")
def _masked_fill(draw: Draw) -> Call:
    shape = draw.shape()
    x = draw.tensor(shape, draw.one_of(ANY))
    return (x, draw.tensor(draw.beside(shape), torch.bool), draw.number() if x.is_floating_point() else 3), {}


@calls("masked_fill.Tensor")
def _masked_fill_by_tensor(draw: Draw) -> Call:
    shape, dtype = draw.shape(), draw.one_of(ANY)
    return (draw.tensor(shape, dtype), draw.tensor(draw.beside(shape), torch.bool), draw.tensor((), dtype)), {}


@calls("_to_copy.default", "to.dtype", "prims.convert_element_type.default")
def _cast(draw: Draw) -> Call:
    """Draw a cast; numbers that an integer cannot hold have no value that anything says."""
    source, target = draw.one_of(ANY), draw.one_of(ANY)
    x = draw.tensor(draw.shape(), source)
    if source.is_floating_point and not target.is_floating_point and target is not torch.bool:
        low, high = (0, 9) if target is torch.uint8 else (-9, 9)
        x = torch.nan_to_num(x, 0.5, high, low).clamp(low, high)
    return (x,), {"dtype": target}


@calls("round.decimals")
def _round_decimals(draw: Draw) -> Call:
    return (draw.tensor(draw.shape(), draw.one_of((*FLOATS, torch.int64)), spread=30),), {
        "decimals": draw.randint(-2, 3)
    }
