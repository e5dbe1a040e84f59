"""Initializers: how parameters get their first values (``mindspore.common.initializer``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, Attributes, natural, one_of
from opbuild.mindspore.dtype import float32, to_type
from opbuild.mindspore.tensor import Tensor

__getattr__ = names.getter(__name__, "mindspore.common.initializer")


_RANDOM: dict[str, Any] = {"seed": None, "generator": np.random.default_rng()}
"""The generator that initializers draw from, and what it began at."""


def set_seed(seed: int) -> None:
    """Make the initializers that follow repeatable. The numbers differ from MindSpore's."""
    natural(seed, "the seed of set_seed", 0)
    _RANDOM.update(seed=seed, generator=np.random.default_rng(seed))


def get_seed() -> int | None:
    """Return the seed set, or None."""
    seed: int | None = _RANDOM["seed"]
    return seed


def generator() -> np.random.Generator:
    """Return the generator that random tensors are drawn from, too."""
    found: np.random.Generator = _RANDOM["generator"]
    return found


class Initializer:
    """Makes arrays; subclasses say how."""

    def values(self, shape: tuple[int, ...]) -> Any:
        """Return the values for a shape: an array, or one number."""
        raise ArgumentTypeError(f"{type(self).__name__} makes no values", "use a subclass of Initializer")

    def make(self, shape: int | Sequence[int], dtype: str) -> Array:
        """Return an array of a shape and element type."""
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        return np.broadcast_to(np.asarray(self.values(extents)).astype(dtype), extents).copy()


def _declared(doc: str, values: Callable[[Any, tuple[int, ...]], Any], base: type = Initializer,
              **attributes: Any) -> Any:  # fmt: skip
    """Return the class of an initializer: ``values`` makes them, of itself, with its attributes, and the shape."""
    taken = Attributes("", attributes)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - becomes a method
        vars(self).update(taken.bind(args, kwargs))

    __init__.__signature__ = taken.method  # type: ignore[attr-defined]
    made = type("Initializer", (base,), {"__init__": __init__, "values": values, "__doc__": doc})

    def call(name: str) -> None:
        made.__name__ = made.__qualname__ = taken.owner = name

    return names.row(made, call)


def truncated(random: np.random.Generator, shape: tuple[int, ...], low: float = -2.0, high: float = 2.0) -> Array:
    """Return numbers of the normal distribution, drawn again outside two bounds."""
    drawn = np.asarray(random.standard_normal(shape))
    while (outside := (drawn < low) | (drawn > high)).any():
        drawn = np.where(outside, random.standard_normal(shape), drawn)
    return drawn


def _he_deviation(self: Any, shape: tuple[int, ...]) -> float:
    """Return the standard deviation that the activation that follows needs."""
    fan = fans(shape)[self.mode == "fan_out"]
    slope = self.negative_slope if self.nonlinearity == "leaky_relu" else 0.0
    return math.sqrt(2.0 / (1.0 + slope**2) / max(fan, 1))


def _matrix(self: Any, shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) != 2:
        raise ArgumentValueError(f"{type(self).__name__} of shape {shape}", "give two dimensions")
    return shape[0], shape[1]


def _dirac(self: Any, shape: tuple[int, ...]) -> Any:
    if not 3 <= len(shape) <= 5 or shape[0] % self.groups:
        raise ArgumentValueError(f"Dirac of shape {shape}", "give 3 to 5 dimensions, the first a multiple of groups")
    weights = np.zeros(shape)
    share = shape[0] // self.groups
    for row in range(shape[0]):
        if row % share < shape[1]:
            weights[(row, row % share, *(extent // 2 for extent in shape[2:]))] = 1
    return weights


def _orthogonal(self: Any, shape: tuple[int, ...]) -> Any:
    rows, columns = shape[0], math.prod(shape[1:])
    first, second = np.linalg.qr(generator().standard_normal((max(rows, columns), min(rows, columns))))
    first = first * np.sign(np.diag(second))
    return self.gain * (first.T if rows < columns else first).reshape(shape)


def _sparse(self: Any, shape: tuple[int, ...]) -> Any:
    drawn = generator().normal(0.0, self.sigma, _matrix(self, shape))
    for column in drawn.T:
        column[generator().permutation(shape[0])[: math.ceil(self.sparsity * shape[0])]] = 0
    return drawn


Zero = _declared("Zeros.", lambda self, shape: 0)
One = _declared("Ones.", lambda self, shape: 1)
Constant = _declared("One number, or an array.", lambda self, shape: self.value, value=...)
Uniform = _declared("Uniform from ``-scale`` to ``scale``.", lambda self, shape: _uniform(self.scale, shape),
    scale=0.07)  # fmt: skip
Normal = _declared("Normal with standard deviation ``sigma``.",
    lambda self, shape: generator().normal(self.mean, self.sigma, shape), sigma=0.01, mean=0.0)  # fmt: skip
TruncatedNormal = _declared("Normal, drawn again outside ``a`` to ``b`` standard deviations.",
    lambda self, shape: truncated(generator(), shape, self.a, self.b) * self.sigma + self.mean,
    sigma=0.01, mean=0.0, a=-2.0, b=2.0)  # fmt: skip
XavierUniform = _declared("Uniform, scaled by the numbers of inputs and outputs.",
    lambda self, shape: _uniform(self.gain * math.sqrt(6.0 / sum(fans(shape))), shape), gain=1)  # fmt: skip
XavierNormal = _declared("Normal, scaled by the numbers of inputs and outputs.",
    lambda self, shape:
        generator().normal(0.0, self.gain * math.sqrt(2.0 / sum(fans(shape))), shape), gain=1)  # fmt: skip
HeNormal = _declared("Normal, scaled by the number of inputs (or outputs) for the activation that follows.",
                     lambda self, shape: generator().normal(0.0, _he_deviation(self, shape), shape), negative_slope=0,
                     mode="fan_in", nonlinearity="leaky_relu")  # fmt: skip
HeUniform = _declared("Uniform, with the deviation of ``HeNormal``.",
                      lambda self, shape: _uniform(math.sqrt(3.0) * _he_deviation(self, shape), shape), HeNormal,
                      negative_slope=0, mode="fan_in", nonlinearity="leaky_relu")  # fmt: skip
Identity = _declared("Ones on the diagonal of a matrix, zeros elsewhere.",
    lambda self, shape: np.eye(*_matrix(self, shape)))  # fmt: skip
Dirac = _declared("Convolution weights that give the channels back as they are, in each group.", _dirac, groups=1)
Orthogonal = _declared("A matrix (the first axis by all others) with orthogonal rows or columns, times ``gain``.",
    _orthogonal, gain=1.0)  # fmt: skip
Sparse = _declared("A matrix of normal numbers with a share of zeros in each column.", _sparse, sparsity=...,
    sigma=0.01)  # fmt: skip


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
            return _uniform(math.sqrt(3 * variance), shape)
        if self.distribution == "untruncated_normal":
            return generator().normal(0.0, math.sqrt(variance), shape)
        # Within 2 deviations a normal distribution has 0.7741 of its variance.
        return TruncatedNormal(math.sqrt(variance) / 0.87962566103423978).values(shape)


def _uniform(bound: float, shape: tuple[int, ...]) -> Array:
    return generator().uniform(-bound, bound, shape)


_BY_NAME: dict[str, type[Initializer]] = {
    "zeros": Zero, "zero": Zero, "ones": One, "one": One, "uniform": Uniform, "normal": Normal,
    "truncatednormal": TruncatedNormal, "xavier_uniform": XavierUniform, "xavieruniform": XavierUniform,
    "xavier_normal": XavierNormal, "xaviernormal": XavierNormal, "he_uniform": HeUniform, "heuniform": HeUniform,
    "he_normal": HeNormal, "henormal": HeNormal,
}  # fmt: skip


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the numbers of inputs and of outputs of a weight of shape (O, I, ...)."""
    if len(shape) < 2:
        raise ArgumentValueError(
            f"a weight of shape {shape} has no inputs and outputs", "it needs at least 2 dimensions"
        )
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def initializer(init: Any, shape: int | Sequence[int] | None = None, dtype: Any = float32) -> Tensor:
    """Return a tensor filled as ``init`` says: a tensor, a number, a name (``"normal"``) or an ``Initializer``."""
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


names.call_rows(vars(), __name__)
