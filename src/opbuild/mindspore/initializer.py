"""Initializers: how parameters get their first values (``mindspore.common.initializer``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, one_of
from opbuild.mindspore.dtype import float32, to_type
from opbuild.mindspore.tensor import Tensor

__getattr__ = names.getter(__name__, "mindspore.common.initializer")


class _Random:
    """The generator that initializers draw from."""

    def __init__(self) -> None:
        self.seed: int | None = None
        self.generator = np.random.default_rng()


_RANDOM = _Random()


def set_seed(seed: int) -> None:
    """Make the initializers that follow repeatable. The numbers differ from MindSpore's."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ArgumentValueError(f"set_seed({seed!r})", "give an integer of at least 0")
    _RANDOM.seed = seed
    _RANDOM.generator = np.random.default_rng(seed)


def get_seed() -> int | None:
    """Return the seed set, or None."""
    return _RANDOM.seed


def generator() -> np.random.Generator:
    """Return what random tensors are drawn from, too."""
    return _RANDOM.generator


class Initializer:
    """Makes arrays; subclasses say how."""

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return the values for a shape: an array, or one number."""
        raise ArgumentTypeError(f"{type(self).__name__} makes no values", "use a subclass of Initializer")

    def make(self, shape: int | Sequence[int], dtype: str) -> Array:
        """Return an array of a shape and element type."""
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        return np.broadcast_to(np.asarray(self.values(extents)).astype(dtype), extents).copy()


class Zero(Initializer):
    """Zeros."""

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return 0."""
        return 0


class One(Initializer):
    """Ones."""

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return 1."""
        return 1


class Constant(Initializer):
    """One number, or an array."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return the value."""
        return self.value


class Uniform(Initializer):
    """Uniform from ``-scale`` to ``scale``."""

    def __init__(self, scale: float = 0.07) -> None:
        self.scale = scale

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return random numbers."""
        return _RANDOM.generator.uniform(-self.scale, self.scale, shape)


class Normal(Initializer):
    """Normal with standard deviation ``sigma``."""

    def __init__(self, sigma: float = 0.01, mean: float = 0.0) -> None:
        self.sigma = sigma
        self.mean = mean

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return random numbers."""
        return _RANDOM.generator.normal(self.mean, self.sigma, shape)


class TruncatedNormal(Initializer):
    """Normal, drawn again outside ``a`` to ``b`` standard deviations."""

    def __init__(self, sigma: float = 0.01, mean: float = 0.0, a: float = -2.0, b: float = 2.0) -> None:
        self.sigma = sigma
        self.mean = mean
        self.limits = (a, b)

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return random numbers."""
        drawn = _RANDOM.generator.standard_normal(shape)
        low, high = self.limits
        while (outside := (drawn < low) | (drawn > high)).any():
            drawn = np.where(outside, _RANDOM.generator.standard_normal(shape), drawn)
        return drawn * self.sigma + self.mean


class XavierUniform(Initializer):
    """Uniform, scaled by the numbers of inputs and outputs."""

    def __init__(self, gain: float = 1) -> None:
        self.gain = gain

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return random numbers."""
        bound = self.gain * math.sqrt(6.0 / sum(fans(shape)))
        return _RANDOM.generator.uniform(-bound, bound, shape)


class XavierNormal(Initializer):
    """Normal, scaled by the numbers of inputs and outputs."""

    def __init__(self, gain: float = 1) -> None:
        self.gain = gain

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return random numbers."""
        return _RANDOM.generator.normal(0.0, self.gain * math.sqrt(2.0 / sum(fans(shape))), shape)


class HeNormal(Initializer):
    """Normal, scaled by the number of inputs (or outputs) for the activation that follows."""

    def __init__(self, negative_slope: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> None:
        self.negative_slope = negative_slope
        self.mode = mode
        self.nonlinearity = nonlinearity

    def deviation(self, shape: tuple[int, ...]) -> float:
        """Return the standard deviation for a shape."""
        fan = fans(shape)[self.mode == "fan_out"]
        slope = self.negative_slope if self.nonlinearity == "leaky_relu" else 0.0
        return math.sqrt(2.0 / (1.0 + slope**2) / max(fan, 1))

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return random numbers."""
        return _RANDOM.generator.normal(0.0, self.deviation(shape), shape)


class HeUniform(HeNormal):
    """Uniform, with the deviation of ``HeNormal``."""

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return random numbers."""
        bound = math.sqrt(3.0) * self.deviation(shape)
        return _RANDOM.generator.uniform(-bound, bound, shape)


_BY_NAME: dict[str, type[Initializer]] = {
    "zeros": Zero, "zero": Zero, "ones": One, "one": One, "uniform": Uniform, "normal": Normal,
    "truncatednormal": TruncatedNormal, "xavier_uniform": XavierUniform, "xavieruniform": XavierUniform,
    "xavier_normal": XavierNormal, "xaviernormal": XavierNormal, "he_uniform": HeUniform, "heuniform": HeUniform,
    "he_normal": HeNormal, "henormal": HeNormal,
}  # fmt: skip


class Identity(Initializer):
    """Ones on the diagonal of a matrix, zeros elsewhere."""

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return the matrix."""
        if len(shape) != 2:
            raise ArgumentValueError(f"Identity of shape {shape}", "give two extents")
        return np.eye(*shape)


class Dirac(Initializer):
    """Convolution weights that give the channels back as they are, in each group."""

    def __init__(self, groups: int = 1) -> None:
        self.groups = groups

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return the weights."""
        if not 3 <= len(shape) <= 5 or shape[0] % self.groups:
            raise ArgumentValueError(f"Dirac of shape {shape}", "give 3 to 5 extents, the first a multiple of groups")
        weights = np.zeros(shape)
        share = shape[0] // self.groups
        for row in range(shape[0]):
            if row % share < shape[1]:
                weights[(row, row % share, *(extent // 2 for extent in shape[2:]))] = 1
        return weights


class Orthogonal(Initializer):
    """A matrix (the first axis by all others) with orthogonal rows or columns, times ``gain``."""

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return the matrix in the shape."""
        rows, columns = shape[0], math.prod(shape[1:])
        drawn = _RANDOM.generator.standard_normal((max(rows, columns), min(rows, columns)))
        first, second = np.linalg.qr(drawn)
        first = first * np.sign(np.diag(second))
        return self.gain * (first.T if rows < columns else first).reshape(shape)


class Sparse(Initializer):
    """A matrix of normal numbers with a share of zeros in each column."""

    def __init__(self, sparsity: float, sigma: float = 0.01) -> None:
        self.sparsity = sparsity
        self.sigma = sigma

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return the matrix."""
        if len(shape) != 2:
            raise ArgumentValueError(f"Sparse of shape {shape}", "give two extents")
        drawn = _RANDOM.generator.normal(0.0, self.sigma, shape)
        for column in drawn.T:
            column[_RANDOM.generator.permutation(shape[0])[: math.ceil(self.sparsity * shape[0])]] = 0
        return drawn


class VarianceScaling(Initializer):
    """Numbers whose variance is ``scale`` divided by the number of inputs, of outputs, or their mean."""

    def __init__(self, scale: float = 1.0, mode: str = "fan_in", distribution: str = "truncated_normal") -> None:
        self.scale = scale
        self.mode = one_of(mode, ("fan_in", "fan_out", "fan_avg"), "the mode of VarianceScaling")
        kinds = ("uniform", "truncated_normal", "untruncated_normal")
        self.distribution = one_of(distribution, kinds, "the distribution of VarianceScaling")

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return numbers drawn from the distribution."""
        inputs, outputs = fans(shape)
        share = {"fan_in": inputs, "fan_out": outputs, "fan_avg": (inputs + outputs) / 2}[self.mode]
        variance = self.scale / max(share, 1.0)
        if self.distribution == "uniform":
            bound = math.sqrt(3 * variance)
            return _RANDOM.generator.uniform(-bound, bound, shape)
        if self.distribution == "untruncated_normal":
            return _RANDOM.generator.normal(0.0, math.sqrt(variance), shape)
        # Within 2 deviations a normal distribution has 0.7741 of its variance.
        return TruncatedNormal(math.sqrt(variance) / 0.87962566103423978).values(shape)


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the numbers of inputs and of outputs of a weight of shape (O, I, ...).

    Raises:
        ArgumentValueError: If the shape has fewer than two dimensions.
    """
    if len(shape) < 2:
        raise ArgumentValueError(
            f"a weight of shape {shape} has no inputs and outputs", "it needs at least 2 dimensions"
        )
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def initializer(init: Any, shape: int | Sequence[int] | None = None, dtype: Any = float32) -> Tensor:
    """Return a tensor filled as ``init`` says: a tensor, a number, a name (``"normal"``) or an ``Initializer``.

    Raises:
        ArgumentValueError: If the name is unknown, or a tensor has another shape.
    """
    if isinstance(init, Tensor):
        wanted = (shape,) if isinstance(shape, int) else tuple(init.shape if shape is None else shape)
        if init.shape != wanted:
            raise ArgumentValueError(f"an initial tensor of shape {init.shape}", f"the parameter's shape is {wanted}")
        return init
    if isinstance(init, str):
        if init.lower() not in _BY_NAME:
            raise ArgumentValueError(f"no initializer {init!r}", "use one of " + ", ".join(sorted(_BY_NAME)))
        init = _BY_NAME[init.lower()]()
    elif isinstance(init, (int, float)):
        init = Constant(init)
    if not isinstance(init, Initializer):
        raise ArgumentTypeError(
            f"an initializer of type {type(init).__name__}", "give a tensor, number, name or Initializer"
        )
    return Tensor.of(init.make(() if shape is None else shape, to_type(dtype).name))
