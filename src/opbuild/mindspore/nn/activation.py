"""Activations as cells."""

from __future__ import annotations

from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError, TensorShapeError
from opbuild.mindspore.initializer import initializer
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.ops import activation, arithmetic
from opbuild.mindspore.ops.elementwise import rrelu
from opbuild.mindspore.ops.normalization import lrn
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor


class ReLU(Cell):
    """``max(x, 0)``."""

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.relu(x)


class ReLU6(Cell):
    """``min(max(x, 0), 6)``."""

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.relu6(x)


class GELU(Cell):
    """GELU; ``approximate`` takes tanh instead of erf, and is the default."""

    def __init__(self, approximate: bool = True) -> None:
        super().__init__()
        self.approximate = approximate

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.gelu(x, "tanh" if self.approximate else "none")


class FastGelu(Cell):
    """``x * sigmoid(1.702 * x)``."""

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.fast_gelu(x)


class Sigmoid(Cell):
    """``1 / (1 + exp(-x))``."""

    def construct(self, input_x: Tensor) -> Tensor:
        """Apply it."""
        return activation.sigmoid(input_x)


class Tanh(Cell):
    """The hyperbolic tangent."""

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return arithmetic.tanh(x)


class Softmax(Cell):
    """Softmax along ``axis``."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.softmax(x, self.axis)


class LogSoftmax(Cell):
    """The logarithm of softmax along ``axis``."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.log_softmax(x, self.axis)


class LeakyReLU(Cell):
    """``x`` where it is not negative, ``alpha * x`` elsewhere."""

    def __init__(self, alpha: float = 0.2) -> None:
        super().__init__()
        self.alpha = alpha

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.leaky_relu(x, self.alpha)


class RReLU(Cell):
    """``x`` where it is not negative, elsewhere times slopes that each call draws anew."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3) -> None:
        super().__init__()
        if lower > upper:
            raise ArgumentValueError(f"RReLU from {lower} to {upper}", "lower must not be above upper")
        self.lower, self.upper = lower, upper

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return rrelu(x, self.lower, self.upper)


class ELU(Cell):
    """``x`` where it is positive, ``alpha * (exp(x) - 1)`` elsewhere."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.elu(x, self.alpha)


class CELU(Cell):
    """``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.celu(x, self.alpha)


class SeLU(Cell):
    """The scaled ELU."""

    def construct(self, input_x: Tensor) -> Tensor:
        """Apply it."""
        return activation.selu(input_x)


class HSwish(Cell):
    """``x * relu6(x + 3) / 6``."""

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.hardswish(x)


class HSigmoid(Cell):
    """``relu6(x + 3) / 6``."""

    def construct(self, input_x: Tensor) -> Tensor:
        """Apply it."""
        return activation.hardsigmoid(input_x)


class SiLU(Cell):
    """``x * sigmoid(x)``."""

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.silu(x)


class Mish(Cell):
    """``x * tanh(softplus(x))``."""

    def construct(self, input_x: Tensor) -> Tensor:
        """Apply it."""
        return activation.mish(input_x)


class Softsign(Cell):
    """``x / (1 + |x|)``."""

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.softsign(x)


class LogSigmoid(Cell):
    """``log(sigmoid(x))``."""

    def construct(self, input_x: Tensor) -> Tensor:
        """Apply it."""
        return activation.logsigmoid(input_x)


class Tanhshrink(Cell):
    """``x - tanh(x)``."""

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.tanhshrink(x)


class SoftShrink(Cell):
    """Elements moved by ``lambd`` towards 0."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def construct(self, input_x: Tensor) -> Tensor:
        """Apply it."""
        return activation.softshrink(input_x, self.lambd)


class HShrink(Cell):
    """Elements whose absolute value is above ``lambd``, and 0 elsewhere."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def construct(self, input_x: Tensor) -> Tensor:
        """Apply it."""
        return activation.hardshrink(input_x, self.lambd)


class PReLU(Cell):
    """``x`` where it is positive, ``w * x`` elsewhere, with one ``w`` for all channels or one for each."""

    def __init__(self, channel: int = 1, w: Any = 0.25) -> None:
        super().__init__()
        self.w = Parameter(initializer(w, (channel,)), name="a")

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.prelu(x, self.w)


class Softmin(Cell):
    """Softmax of the negative along ``axis``."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.softmin(x, self.axis)


class Softmax2d(Cell):
    """Softmax over the channels of a tensor of shape (N, C, H, W) or (C, H, W)."""

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        if x.ndim not in (3, 4):
            raise TensorShapeError(f"Softmax2d of shape {x.shape}", "it needs 3 or 4 dimensions")
        return activation.softmax(x, -3)


class Hardtanh(Cell):
    """Elements limited to ``min_val`` and ``max_val``."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        super().__init__()
        if min_val >= max_val:
            raise ArgumentValueError(f"Hardtanh from {min_val} to {max_val}", "the first must be below the second")
        self.min_val, self.max_val = min_val, max_val

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.hardtanh(x, self.min_val, self.max_val)


class Threshold(Cell):
    """Elements above ``threshold``, and ``value`` elsewhere."""

    def __init__(self, threshold: float, value: float) -> None:
        super().__init__()
        self.threshold, self.value = threshold, value

    def construct(self, input_x: Tensor) -> Tensor:
        """Apply it."""
        return activation.threshold(input_x, self.threshold, self.value)


class GLU(Cell):
    """The first half along ``axis`` times the sigmoid of the second."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def construct(self, x: Tensor) -> Tensor:
        """Apply it."""
        return activation.glu(x, self.axis)


class LRN(Cell):
    """Elements divided by the squares of neighbouring channels: ``ops.lrn``."""

    def __init__(self, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5,
                 norm_region: str = "ACROSS_CHANNELS") -> None:  # fmt: skip
        super().__init__()
        self.arguments = (depth_radius, bias, alpha, beta, norm_region)

    def construct(self, input_x: Tensor) -> Tensor:
        """Apply it."""
        return lrn(input_x, *self.arguments)


_BY_NAME: dict[str, type[Cell]] = {
    "softmax": Softmax, "logsoftmax": LogSoftmax, "relu": ReLU, "relu6": ReLU6, "silu": SiLU, "tanh": Tanh,
    "tanhshrink": Tanhshrink, "gelu": GELU, "fast_gelu": FastGelu, "elu": ELU, "sigmoid": Sigmoid, "softsign": Softsign,
    "prelu": PReLU, "leakyrelu": LeakyReLU, "hswish": HSwish, "hsigmoid": HSigmoid, "logsigmoid": LogSigmoid,
    "softmin": Softmin, "softmax2d": Softmax2d, "hardtanh": Hardtanh,
    "softshrink": SoftShrink, "hshrink": HShrink, "mish": Mish,
}  # fmt: skip


def get_activation(name: str | None, prim_name: str | None = None) -> Cell | None:
    """Return the activation of a name, None for None.

    Raises:
        ArgumentValueError: If there is no such activation.
    """
    if name is None:
        return None
    if name not in _BY_NAME:
        raise ArgumentValueError(f"no activation {name!r}", "use one of " + ", ".join(sorted(_BY_NAME)))
    return _BY_NAME[name]()


__all__ = names.public(vars(), Cell)
__all__ += ["get_activation"]
