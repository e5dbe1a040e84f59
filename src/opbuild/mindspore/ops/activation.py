"""Activations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from opbuild.mindspore.arguments import ArgumentValueError, Attributes, axis_in, one_of
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.ops.arithmetic import OWN, greater, mul, neg, sub, tanh, where
from opbuild.mindspore.ops.declaration import formula, need_tensor, of_floats, of_tensor, spelled
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "celu", "elu", "fast_gelu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu",
    "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink", "softmax",
    "softmin", "softplus", "softshrink", "softsign", "swiglu", "tanhshrink", "threshold",
]  # fmt: skip

relu6 = formula("relu6", "each element limited to 0 and 6", of_tensor(lambda x: hardtanh(x, 0, 6)))
sigmoid = formula("sigmoid", "``1 / (1 + exp(-input))``", of_floats(lambda input: emit("Sigmoid", input)))
softshrink = formula(
    "softshrink", "elements moved by ``lambd`` towards 0, and 0 for those nearer",
    of_tensor(lambda input, lambd=0.5: emit("Shrink", input, lambd=float(lambd), bias=float(lambd))),
)  # fmt: skip
logsigmoid = formula("logsigmoid", "``log(sigmoid(x))``", of_tensor(lambda x: neg(emit("Softplus", neg(x)))))
tanhshrink = formula("tanhshrink", "``input - tanh(input)``", lambda input: sub(input, tanh(input)))
threshold = formula(
    "threshold", "elements above ``thr``, and ``value`` elsewhere",
    of_tensor(lambda input, thr, value: emit("Where", greater(input, thr), input, np.asarray(value, input.type.dtype))),
)  # fmt: skip
softmax = formula("softmax", "``exp(input)`` divided by its sum along ``axis``",
                  lambda input, axis=-1, *, dtype=None: _normalized("Softmax", input, axis, dtype))  # fmt: skip
log_softmax = formula("log_softmax", "the logarithm of ``softmax(logits, axis)``",
                      lambda logits, axis=-1: _normalized("LogSoftmax", logits, axis, None))  # fmt: skip
softmin = formula("softmin", "``softmax(-x, axis)``",
                  lambda x, axis=-1, *, dtype=None: softmax(neg(x), axis, dtype=dtype))  # fmt: skip
fast_gelu = formula("fast_gelu", "``x * sigmoid(1.702 * x)``", lambda x: mul(x, sigmoid(mul(x, 1.702))))


def relu(input: Any, inplace: bool = False) -> Tensor:
    """Return ``max(input, 0)``.

    Raises:
        ArgumentValueError: If ``inplace`` is set: networks here have no places to change.
    """
    if inplace:
        raise ArgumentValueError("relu was given inplace=True", "use its result instead")
    return emit("Relu", need_tensor(input, "relu"))


def gelu(input: Any, approximate: str = "none") -> Tensor:
    """Return ``input`` times the normal distribution's cumulative function of it.

    Args:
        input: A tensor of floats.
        approximate: ``"none"`` (with erf) or ``"tanh"``.
    """
    one_of(approximate, ("none", "tanh"), "approximate")
    return emit("Gelu", need_tensor(input, "gelu"), approximate=approximate)


def _emitting(name: str, op_type: str, what: str, operand: str = "input", domain: str = "",
              fixed: Mapping[str, float] | None = None, **attributes: float) -> Callable[..., Tensor]:  # fmt: skip
    """Return the activation that is one operator, with ``fixed`` attributes and those that it takes by defaults."""
    taken = Attributes(name, {operand: ..., **attributes})

    def function(*args: Any, **kwargs: Any) -> Tensor:
        given = taken.bind(args, kwargs)
        tensor = need_tensor(given.pop(operand), name)
        return emit(
            op_type, tensor, domain=domain, **{key: float(value) for key, value in given.items()}, **(fixed or {})
        )

    function.__signature__ = taken.signature  # type: ignore[attr-defined]
    return formula(name, f"{what}", function)


silu = _emitting("silu", "Silu", "``input * sigmoid(input)``", domain=OWN)
hardswish = _emitting("hardswish", "HardSwish", "``input * relu6(input + 3) / 6``")
hardsigmoid = _emitting("hardsigmoid", "HardSigmoid", "``relu6(input + 3) / 6``",
                        fixed={"alpha": 1.0 / 6.0, "beta": 0.5})  # fmt: skip
mish = _emitting("mish", "Mish", "``x * tanh(softplus(x))``", "x")
leaky_relu = _emitting("leaky_relu", "LeakyRelu", "``input`` where it is not negative, ``alpha * input`` elsewhere",
                       alpha=0.2)  # fmt: skip
elu = _emitting("elu", "Elu", "``x`` where it is positive, ``alpha * (exp(x) - 1)`` elsewhere", "input_x", alpha=1.0)
selu = _emitting("selu", "Selu", "the scaled ELU", "input_x")
softsign = _emitting("softsign", "Softsign", "``x / (1 + |x|)``", "x")
hardshrink = _emitting("hardshrink", "Shrink", "elements whose absolute value is above ``lambd``, and 0 elsewhere",
                       fixed={"bias": 0.0}, lambd=0.5)  # fmt: skip


def celu(x: Any, alpha: float = 1.0) -> Tensor:
    """Return ``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``."""
    if alpha == 0:
        raise ArgumentValueError("celu was given alpha=0", "give a float that is not 0")
    return emit("Celu", need_tensor(x, "celu"), alpha=float(alpha))


def softplus(input: Any, beta: float = 1, threshold: float = 20) -> Tensor:
    """Return ``log(1 + exp(beta * x)) / beta``, and ``x`` where ``beta * x`` is above ``threshold``."""
    tensor = need_tensor(input, "softplus")
    scaled = tensor if beta == 1 else mul(tensor, float(beta))
    soft = emit("Softplus", scaled)
    soft = soft if beta == 1 else mul(soft, 1.0 / beta)
    # Above 20 the two differ by less than an ulp of float32, so only a smaller threshold shows.
    return soft if threshold >= 20 else where(greater(scaled, threshold), tensor, soft)


def prelu(input: Any, weight: Any) -> Tensor:
    """Return ``input`` where it is positive, ``weight * input`` elsewhere, one weight or one a channel."""
    tensor, slope = need_tensor(input, "prelu"), need_tensor(weight, "prelu")
    if slope.size > 1 and tensor.ndim > 2:
        slope = emit("Reshape", slope, np.array([-1] + [1] * (tensor.ndim - 2), np.int64))
    return emit("PRelu", tensor, slope)


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Return each element limited to ``min_val`` and ``max_val``."""
    tensor = need_tensor(input, "hardtanh")
    return emit("Clip", tensor, np.asarray(min_val, tensor.type.dtype), np.asarray(max_val, tensor.type.dtype))


def _normalized(op_type: str, value: Any, axis: int, dtype: Any) -> Tensor:
    tensor = need_tensor(value, op_type)
    if dtype is not None:
        tensor = cast(tensor, to_type(dtype).name)
    axis_in(axis, tensor.ndim, op_type)
    return emit(op_type, tensor, axis=axis)


def glu(x: Any, axis: int = -1) -> Tensor:
    """Return the first half along ``axis`` times the sigmoid of the second."""
    first, second = _halves(x, axis, "glu")
    return mul(first, sigmoid(second))


def swiglu(input: Any, dim: int = -1) -> Tensor:
    """Return ``silu`` of the first half along ``dim`` times the second."""
    first, second = _halves(input, dim, "swiglu")
    return mul(silu(first), second)


def _halves(value: Any, axis: int, name: str) -> tuple[Tensor, Tensor]:
    from opbuild.mindspore.ops.shaping import split

    tensor = need_tensor(value, name)
    extent = tensor.shape[axis_in(axis, tensor.ndim, name)]
    if extent % 2:
        raise ArgumentValueError(f"{name} splits axis {axis} of size {extent}", "its size must be even")
    first, second = split(tensor, extent // 2, axis)
    return first, second


soft_shrink = spelled(softshrink, "soft_shrink")
