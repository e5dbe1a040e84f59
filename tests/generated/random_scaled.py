"""Networks of linear operators whose weights and factors have any exponent, while all values between them are ordinary.

All numbers are positive, so that nothing cancels and each result has the digits of its type: whatever order products
are taken in, a result is right to a few units of rounding, or a factor has gone where its product is no normal number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]

LOWEST, HIGHEST = -34.0, 36.5
"""Decimal exponents of the values between operators."""

CHANNELS = (1, 3, 4, 16, 20, 32)


@dataclass
class Scaled:
    """A network as it is drawn, with its value in float64.

    Attributes:
        rng: Draws.
        value: What the operators so far compute.
        image: Whether it is an image, or else rows.
        nodes: The operators.
        constants: Their constants.
    """

    rng: np.random.Generator
    value: Array
    image: bool
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    name: str = "x"

    @property
    def exponent(self) -> float:
        """The decimal exponent of the value's middle."""
        return float(np.log10(np.sqrt(self.value.max() * self.value.min())))

    def near(self, exponent: float, *shape: int) -> Array:
        """Return float32 numbers about a power of ten, within a factor of two."""
        exponent = min(max(exponent, -37.0), 37.8)
        return (10**exponent * self.rng.uniform(0.7, 1.4, shape)).astype(np.float32)

    def target(self) -> float:
        """Return a factor's exponent that leaves the value in its range: often to its ends."""
        ends = (LOWEST, HIGHEST, self.exponent, 0.0, float(self.rng.uniform(LOWEST, HIGHEST)))
        wanted = float(self.rng.choice(ends))
        return min(max(wanted - self.exponent, -37.0), 37.0)

    def constant(self, value: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def add(self, op_type: str, value: Array, *constants: Array, first: bool = True, **attrs: Any) -> None:
        """Append an operator of the value so far and of constants."""
        names = [self.constant(each) for each in constants]
        inputs = [self.name, *names] if first else [*names, self.name]
        self.name, self.value = f"v{len(self.nodes)}", value
        self.nodes.append(helper.make_node(op_type, inputs, [self.name], **attrs))

    def model(self, x: Array) -> onnx.ModelProto:
        """Return the network as a model."""
        graph = helper.make_graph(
            self.nodes,
            "scaled",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
            [helper.make_tensor_value_info(self.name, onnx.TensorProto.FLOAT, self.value.shape)],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _channels(of: Scaled, exponent: float) -> Array:
    """Return a factor for each channel, or one for all; some channels may be far from the others."""
    shape = (of.value.shape[1], *(1,) * (of.value.ndim - 2)) if of.rng.random() < 0.7 else ()
    return of.near(exponent, *shape)


def _factor(of: Scaled) -> None:
    exponent = of.target()
    if of.rng.random() < 0.3:
        factor = _channels(of, -exponent)
        of.add("Div", of.value / factor.astype("f8"), factor)
    else:
        factor = _channels(of, exponent)
        of.add("Mul", of.value * factor.astype("f8"), factor, first=of.rng.random() < 0.7)


def _addend(of: Scaled) -> None:
    addend = _channels(of, of.exponent)
    of.add("Add", of.value + addend.astype("f8"), addend)


def _normalization(of: Scaled) -> None:
    """A BatchNormalization without a mean: the factor is a quotient, whose parts have other exponents than it."""
    exponent, count = of.target(), of.value.shape[1]
    part = float(of.rng.uniform(-15, 15))
    scale, variance = of.near(exponent + part, count), of.near(2 * part, count)
    factor = scale.astype("f8") / np.sqrt(variance.astype("f8"))
    bias, mean = np.zeros(count, np.float32), np.zeros(count, np.float32)
    column = (1, -1, *(1,) * (of.value.ndim - 2))
    of.add("BatchNormalization", of.value * factor.reshape(column), scale, bias, mean, variance, epsilon=0.0)


def _product(of: Scaled) -> None:
    """A Conv or ConvTranspose of an image, a Gemm or MatMul of rows."""
    exponent, inputs, outputs = of.target() - 1.5, of.value.shape[1], int(of.rng.choice(CHANNELS))
    if of.image:
        size = int(of.rng.choice([1, 1, 3]))
        turned = of.rng.random() < 0.3
        weights = of.near(exponent, *((inputs, outputs) if turned else (outputs, inputs)), size, size)
        of.add("ConvTranspose" if turned else "Conv", _convolved(of.value, weights.astype("f8"), turned), weights)
        return
    weights = of.near(exponent, inputs, outputs)
    if of.rng.random() < 0.3:
        of.add("MatMul", of.value @ weights.astype("f8"), weights)
        return
    alpha = float(np.float32(10 ** of.rng.uniform(-8, 8))) if of.rng.random() < 0.4 else 1.0
    if not LOWEST < of.exponent + exponent < HIGHEST - 2:  # the sum before it is multiplied
        alpha = 1.0
    of.add("Gemm", alpha * (of.value @ weights.astype("f8")), weights, alpha=alpha)


def _convolved(x: Array, weights: Array, turned: bool) -> Array:
    """Return a convolution without padding, or the transposed one."""
    size = weights.shape[-1]
    if turned:
        x = np.pad(x, ((0, 0), (0, 0), (size - 1, size - 1), (size - 1, size - 1)))
        weights = weights[:, :, ::-1, ::-1].swapaxes(0, 1)
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weights, optimize=True)


OPERATORS: tuple[Callable[[Scaled], None], ...] = (_product, _product, _factor, _factor, _normalization, _addend)


def draw(seed: int) -> tuple[Scaled, Array]:
    """Return the network of a seed, and its input."""
    rng = np.random.default_rng(seed)
    image = bool(rng.random() < 0.6)
    channels = int(rng.choice(CHANNELS))
    shape = (
        (1, channels, *(int(rng.integers(6, 20)) for _ in range(2))) if image else (int(rng.integers(1, 5)), channels)
    )
    exponent = float(rng.choice([LOWEST, HIGHEST, rng.uniform(LOWEST, HIGHEST)]))
    x = (10**exponent * rng.uniform(0.7, 1.4, shape)).astype(np.float32)
    of = Scaled(rng, x.astype("f8"), image)
    for _ in range(int(rng.integers(2, 7))):
        before = of.value, of.name, [*of.nodes], {**of.constants}
        OPERATORS[int(rng.integers(len(OPERATORS)))](of)
        if not is_ordinary(of):
            of.value, of.name, of.nodes, of.constants = before
    return (of, x) if of.nodes else draw(seed + 10**6)


def is_ordinary(of: Scaled) -> bool:
    """Return whether the value is there, and far enough from the limits of float32."""
    if not of.value.size:
        return False
    return bool(of.value.min() > 10 ** (LOWEST - 1) and of.value.max() < 10 ** (HIGHEST + 1))
