"""ONNX's elementwise operators and the products and reductions that constants go through, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from opbuild.backend.host.elementwise import apply
from opbuild.backend.host.movement import implements
from opbuild.graph.types import Array, Node

_PLAIN = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Neg": "neg", "Abs": "abs", "Sign": "sign",
    "Reciprocal": "reciprocal", "Sqrt": "sqrt", "Floor": "floor", "Ceil": "ceil", "Round": "round", "Exp": "exp",
    "Log": "log",
    "Erf": "erf", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Softplus": "softplus", "Softsign": "softsign", "Mish": "mish", "HardSwish": "hard_swish", "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal", "And": "and", "Or": "or",
    "Xor": "xor",
    "Not": "not", "IsNaN": "is_nan", "PRelu": "prelu", "BitwiseAnd": "bit_and", "BitwiseOr": "bit_or",
    "BitwiseXor": "bit_xor",
    "BitwiseNot": "bit_not",
}  # fmt: skip

_WITH_PARAMETERS: dict[str, tuple[str, tuple[tuple[str, float], ...]]] = {
    "LeakyRelu": ("leaky_relu", (("alpha", 0.01),)),
    "Elu": ("elu", (("alpha", 1.0),)),
    "Celu": ("celu", (("alpha", 1.0),)),
    "Selu": ("selu", (("alpha", 1.6732631921768188), ("gamma", 1.0507010221481323))),
    "HardSigmoid": ("hard_sigmoid", (("alpha", 0.2), ("beta", 0.5))),
    "ThresholdedRelu": ("thresholded_relu", (("alpha", 1.0),)),
    "Shrink": ("shrink", (("lambd", 0.5), ("bias", 0.0))),
}


@implements("Pow")
def _pow(node: Node, inputs: Any) -> Sequence[Array]:
    base, exponent = inputs
    if np.issubdtype(base.dtype, np.floating):
        exponent = exponent.astype(base.dtype)
    elif np.issubdtype(exponent.dtype, np.floating):  # an integer to a fraction: in float64, then towards zero
        return (apply("pow", base.astype(np.float64), exponent.astype(np.float64)).astype(base.dtype),)
    return (apply("pow", base, exponent.astype(base.dtype)),)


@implements("Det")
def _det(node: Node, inputs: Any) -> Sequence[Array]:
    return (np.linalg.det(inputs[0].astype(np.float64)).astype(inputs[0].dtype),)


@implements(*_PLAIN)
def _plain(node: Node, inputs: Any) -> Sequence[Array]:
    return (apply(_PLAIN[node.op_type], *inputs),)


@implements(*_WITH_PARAMETERS)
def _with_parameters(node: Node, inputs: Any) -> Sequence[Array]:
    name, parameters = _WITH_PARAMETERS[node.op_type]
    x = inputs[0]
    kind = x.dtype if np.issubdtype(x.dtype, np.floating) else np.dtype(np.longdouble)  # has every integer
    operands = [np.asarray(node.attrs.get(each, default), kind) for each, default in parameters]
    return (apply(name, x.astype(kind, copy=False), *operands).astype(x.dtype, copy=False),)


@implements("Max", "Min", "Sum")
def _variadic(node: Node, inputs: Any) -> Sequence[Array]:
    name = {"Max": "max", "Min": "min", "Sum": "add"}[node.op_type]
    return (reduce(lambda a, b: apply(name, a, b), inputs),)


@implements("Mean")
def _mean(node: Node, inputs: Any) -> Sequence[Array]:
    total = reduce(lambda a, b: apply("add", a, b), inputs)
    return (apply("div", total, np.asarray(len(inputs), total.dtype)),)


@implements("Mod")
def _mod(node: Node, inputs: Any) -> Sequence[Array]:
    return (apply("fmod" if node.attrs.get("fmod", 0) else "mod", *inputs),)


@implements("Gelu")
def _gelu(node: Node, inputs: Any) -> Sequence[Array]:
    return (apply("gelu_tanh" if node.attrs.get("approximate", "none") == "tanh" else "gelu", inputs[0]),)


@implements("Swish")
def _swish(node: Node, inputs: Any) -> Sequence[Array]:
    x = inputs[0]
    return (apply("mul", x, apply("sigmoid", apply("mul", x, np.asarray(node.attrs.get("alpha", 1.0), x.dtype)))),)


@implements("Clip")
def _clip(node: Node, inputs: Any) -> Sequence[Array]:
    x, low, high = (*inputs, None, None)[:3]
    limits = np.finfo(x.dtype) if np.issubdtype(x.dtype, np.floating) else np.iinfo(x.dtype)
    low = np.asarray(limits.min if low is None else low, x.dtype).reshape(())
    high = np.asarray(limits.max if high is None else high, x.dtype).reshape(())
    return (apply("clip", x, low, high),)


@implements("BitShift")
def _bit_shift(node: Node, inputs: Any) -> Sequence[Array]:
    return (apply("shift_left" if node.attrs["direction"] == "LEFT" else "shift_right", *inputs),)


@implements("IsInf")
def _is_inf(node: Node, inputs: Any) -> Sequence[Array]:
    x = inputs[0]
    found = np.isinf(x)
    if not node.attrs.get("detect_negative", 1):
        found &= x > 0
    if not node.attrs.get("detect_positive", 1):
        found &= x < 0
    return (found,)


@implements("MatMul")
def _matmul(node: Node, inputs: Any) -> Sequence[Array]:
    with np.errstate(all="ignore"):
        return (np.matmul(inputs[0], inputs[1]),)


@implements("Gemm")
def _gemm(node: Node, inputs: Any) -> Sequence[Array]:
    a = inputs[0].T if node.attrs.get("transA", 0) else inputs[0]
    b = inputs[1].T if node.attrs.get("transB", 0) else inputs[1]
    with np.errstate(all="ignore"):
        found = np.matmul(a, b)
        found = found * found.dtype.type(node.attrs.get("alpha", 1.0))
        if len(inputs) > 2 and inputs[2] is not None:
            found = found + inputs[2] * found.dtype.type(node.attrs.get("beta", 1.0))
    return (found,)
