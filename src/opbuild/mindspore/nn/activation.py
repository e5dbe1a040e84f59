"""Activations as cells."""

from __future__ import annotations

from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError, TensorShapeError
from opbuild.mindspore.initializer import initializer
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import cell, layer
from opbuild.mindspore.ops import activation, arithmetic
from opbuild.mindspore.ops.normalization import lrn
from opbuild.mindspore.ops.random import rrelu
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor


@cell()
def Softmax2d(x: Any) -> Tensor:
    """Softmax over the channels of a tensor of shape (N, C, H, W) or (C, H, W)."""
    if x.ndim not in (3, 4):
        raise TensorShapeError(f"Softmax2d of shape {x.shape}", "it needs 3 or 4 dimensions")
    return activation.softmax(x, -3)


ReLU = layer("ReLU", activation.relu, "``max(x, 0)``.", "x")
ReLU6 = layer("ReLU6", activation.relu6, "``min(max(x, 0), 6)``.")
GELU = layer("GELU", lambda x, *, approximate=True: activation.gelu(x, "tanh" if approximate else "none"),
             "GELU; ``approximate`` takes tanh instead of erf, and is the default.")  # fmt: skip
FastGelu = layer("FastGelu", activation.fast_gelu, "``x * sigmoid(1.702 * x)``.")
Sigmoid = layer("Sigmoid", activation.sigmoid, "``1 / (1 + exp(-x))``.", "input_x")
Tanh = layer("Tanh", arithmetic.tanh, "The hyperbolic tangent.", "x")
Softmax = layer("Softmax", activation.softmax, "Softmax along ``axis``.", "x", axis=-1)
LogSoftmax = layer("LogSoftmax", activation.log_softmax, "The logarithm of softmax along ``axis``.", "x", axis=-1)
LeakyReLU = layer("LeakyReLU", activation.leaky_relu, "``x`` where it is not negative, ``alpha * x`` elsewhere.", "x",
                  alpha=0.2)  # fmt: skip
ELU = layer("ELU", activation.elu, "``x`` where it is positive, ``alpha * (exp(x) - 1)`` elsewhere.", "x", alpha=1.0)
CELU = layer("CELU", activation.celu, "``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``.", alpha=1.0)
SeLU = layer("SeLU", activation.selu, "The scaled ELU.")
HSwish = layer("HSwish", activation.hardswish, "``x * relu6(x + 3) / 6``.", "x")
HSigmoid = layer("HSigmoid", activation.hardsigmoid, "``relu6(x + 3) / 6``.", "input_x")
SiLU = layer("SiLU", activation.silu, "``x * sigmoid(x)``.", "x")
Mish = layer("Mish", activation.mish, "``x * tanh(softplus(x))``.", "input_x")
Softsign = layer("Softsign", activation.softsign, "``x / (1 + |x|)``.")
LogSigmoid = layer("LogSigmoid", activation.logsigmoid, "``log(sigmoid(x))``.", "input_x")
Tanhshrink = layer("Tanhshrink", activation.tanhshrink, "``x - tanh(x)``.", "x")
SoftShrink = layer("SoftShrink", activation.softshrink, "Elements moved by ``lambd`` towards 0.", "input_x", lambd=0.5)
HShrink = layer("HShrink", activation.hardshrink, "Elements whose absolute value is above ``lambd``, and 0 elsewhere.",
                "input_x", lambd=0.5)  # fmt: skip
Softmin = layer("Softmin", activation.softmin, "Softmax of the negative along ``axis``.", "x", axis=-1)
Threshold = layer("Threshold", lambda input_x, *, threshold, value: activation.threshold(input_x, threshold, value),
                  "Elements above ``threshold``, and ``value`` elsewhere.")  # fmt: skip
GLU = layer("GLU", activation.glu, "The first half along ``axis`` times the sigmoid of the second.", axis=-1)
LRN = layer("LRN", lrn, "Elements divided by the squares of neighbouring channels: ``ops.lrn``.", "input_x",
            depth_radius=5, bias=1.0, alpha=1.0, beta=0.5, norm_region="ACROSS_CHANNELS")  # fmt: skip


def _rises(low: float, high: float, what: str) -> None:
    if low > high:
        raise ArgumentValueError(f"RReLU from {low} to {high}", "lower must not be above upper")


def _widens(low: float, high: float, what: str) -> None:
    if low >= high:
        raise ArgumentValueError(f"Hardtanh from {low} to {high}", "the first must be below the second")


RReLU = layer("RReLU", rrelu, "``x`` where it is not negative, elsewhere times slopes that each call draws anew.", "x",
              checks={"lower upper": _rises}, lower=1 / 8, upper=1 / 3)  # fmt: skip
PReLU = layer(
    "PReLU", lambda self, x: activation.prelu(x, self.w),
    "``x`` where it is positive, ``w * x`` elsewhere, with one ``w`` for all channels or one for each.",
    made={"w": lambda self: Parameter(initializer(self.w, (self.channel,)), name="a")}, channel=1, w=0.25,
)  # fmt: skip
Hardtanh = layer("Hardtanh", activation.hardtanh, "Elements limited to ``min_val`` and ``max_val``.", "x",
                 checks={"min_val max_val": _widens}, min_val=-1.0, max_val=1.0)  # fmt: skip

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
