"""Random tensors, and dropout, which draws before each call. ``set_seed`` and ``seed`` make them repeatable.

The numbers differ from MindSpore's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.errors import InvalidModelError
from opbuild.frontend.cell import current, location
from opbuild.graph.types import Array, TensorType
from opbuild.mindspore import initializer, names
from opbuild.mindspore.arguments import ArgumentValueError, axis_in
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.execution import array_of, cast
from opbuild.mindspore.ops.arithmetic import add, div, greater, less, mul, softmax, where
from opbuild.mindspore.ops.declaration import formula, named, need_tensor, of_tensor, spelled
from opbuild.mindspore.ops.reduction import argmax
from opbuild.mindspore.ops.shaping import broadcast_to, ints, one_hot
from opbuild.mindspore.parameter import Drawn, need_states
from opbuild.mindspore.tensor import Tensor

shape_of = formula("a shape given as integers or as a sequence of them",
    lambda size: ints(size[0] if len(size) == 1 else size, "the size") if size else ())  # fmt: skip


def drawn(name: str, values: Any, dtype: Any = None, seed: Any = None) -> Tensor:
    """Return the tensor that ``values`` draws from the generator: that of ``set_seed``, or one that begins at ``seed``.

    Raises:
        InvalidModelError: While a network is traced: it would be the same numbers in each call.
    """
    if current() is not None:
        raise InvalidModelError(
            f"construct calls ops.{name}{location()}, which would happen once, when the network is traced",
            "call it outside of construct and give its result as an argument, or use set_context(mode=PYNATIVE_MODE)",
        )
    generator = initializer.generator() if seed is None else np.random.default_rng(int(seed) & (2**63 - 1))
    array = np.asarray(values(generator))
    name = to_type(dtype).name if dtype is not None else array.dtype.name
    return Tensor.of(np.ascontiguousarray(array.astype(name)).reshape(array.shape))


def _sampler(name: str, drawing: str, what: str) -> Callable[..., Tensor]:
    def function(*size: Any, dtype: Any = None, seed: Any = None) -> Tensor:
        return drawn(name, lambda generator: getattr(generator, drawing)(shape_of(size)), dtype or np.float32, seed)

    return named(function, name, f"Return numbers drawn {what}.")


def _like(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    name = f"{function.__name__}_like"

    def like(input: Any, seed: Any = None, *, dtype: Any = None) -> Tensor:
        tensor = need_tensor(input, name)
        return function(*tensor.shape or ((),), dtype=dtype or tensor.dtype, seed=seed)

    return formula(f"``{function.__name__}`` in the shape (and type) of a tensor", like)


def randint(low: int, high: int, size: Any, seed: Any = None, *, dtype: Any = None) -> Tensor:
    """Return integers (int64) drawn evenly from ``low`` to below ``high``."""
    if low >= high:
        raise ArgumentValueError(f"randint from {low} to below {high}", "low must be below high")
    shape = ints(size, "the size of randint") if size != () else ()
    return drawn("randint", lambda generator: generator.integers(low, high, shape), dtype or np.int64, seed)


def uniform(shape: Any, minval: Any, maxval: Any, seed: Any = None, dtype: Any = np.float32) -> Tensor:
    """Return numbers drawn evenly from ``minval`` to below ``maxval``."""
    low, high = array_of(minval), array_of(maxval)
    full = _full(shape, low, high)
    if np.dtype(to_type(dtype).name).kind in "iu":
        return drawn("uniform", lambda generator: generator.integers(low, high, full), dtype, seed)
    return drawn("uniform", lambda generator: generator.uniform(low, high, full), dtype, seed)


def normal(shape: Any, mean: Any, stddev: Any, seed: Any = None) -> Tensor:
    """Return numbers (float32) drawn from normal distributions."""
    centre, spread = array_of(mean), array_of(stddev)
    full = _full(shape, centre, spread)
    return drawn("normal", lambda generator: generator.normal(centre, spread, full), np.float32, seed)


def _full(shape: Any, *parameters: Any) -> tuple[int, ...]:
    extents = ints(shape, "the shape") if not isinstance(shape, tuple) or shape else ()
    return np.broadcast_shapes(extents, *(np.shape(item) for item in parameters))


def gamma(shape: Any, alpha: Any, beta: Any, seed: Any = None) -> Tensor:
    """Return numbers (float32) drawn from gamma distributions of shape ``alpha`` and rate ``beta``."""
    form, scale = array_of(alpha), 1 / np.asarray(array_of(beta))
    full = ints(shape, "the shape of gamma") + np.broadcast_shapes(np.shape(form), np.shape(scale))
    return drawn("gamma", lambda generator: generator.gamma(form, scale, full), np.float32, seed)


def random_gamma(shape: Any, alpha: Any, seed: Any = None) -> Tensor:
    """Return numbers drawn from gamma distributions of rate 1, ``shape`` for each element of ``alpha``."""
    form = need_tensor(alpha, "random_gamma").asnumpy()
    full = ints(shape, "the shape of random_gamma") + form.shape
    return drawn("random_gamma", lambda generator: generator.gamma(form, 1.0, full), form.dtype, seed)


def poisson(shape: Any, mean: Any, seed: Any = None) -> Tensor:
    """Return numbers drawn from Poisson distributions."""
    rate = np.asarray(array_of(mean))
    full = ints(shape, "the shape of poisson") + rate.shape
    return drawn("poisson", lambda generator: generator.poisson(rate, full), np.float32, seed)


def random_poisson(shape: Any, rate: Any, seed: Any = None, dtype: Any = np.float32) -> Tensor:
    """Return numbers drawn from Poisson distributions, ``shape`` for each element of ``rate``."""
    rates = np.asarray(array_of(rate))
    full = ints(shape, "the shape of random_poisson") + rates.shape
    return drawn("random_poisson", lambda generator: generator.poisson(rates, full), dtype, seed)


def laplace(shape: Any, mean: Any, lambda_param: Any, seed: Any = None) -> Tensor:
    """Return numbers (float32) drawn from Laplace distributions."""
    centre, spread = array_of(mean), array_of(lambda_param)
    full = _full(shape, centre, spread)
    return drawn("laplace", lambda generator: generator.laplace(centre, spread, full), np.float32, seed)


def bernoulli(input: Any, p: Any = 0.5, seed: Any = None) -> Tensor:
    """Return 1 with probability ``p`` and 0 otherwise, in the shape and type of a tensor."""
    tensor, chance = need_tensor(input, "bernoulli"), array_of(p)
    return drawn("bernoulli", lambda generator: generator.random(tensor.shape) < chance, tensor.dtype, seed)


def multinomial(input: Any, num_samples: int, replacement: bool = True, seed: Any = None) -> Tensor:
    """Return indices drawn with the probabilities of each row, as many as ``num_samples`` a row."""
    weights = need_tensor(input, "multinomial").asnumpy().astype(np.float64)

    def values(generator: Any) -> Array:
        rows = [generator.choice(row.size, num_samples, replacement, row / row.sum()) for row in np.atleast_2d(weights)]
        return np.array(rows).reshape((*weights.shape[:-1], num_samples))

    return drawn("multinomial", values, np.int32 if replacement else np.int64, seed)


def multinomial_with_replacement(x: Any, seed: int, offset: int, numsamples: int, replacement: bool = False) -> Tensor:
    """Return indices (int64) drawn with the probabilities of each row."""
    tensor = multinomial(x, numsamples, True, seed or None)
    return Tensor.of(tensor.asnumpy().astype(np.int64))


def random_categorical(logits: Any, num_sample: int, seed: int = 0, dtype: Any = np.int64) -> Tensor:
    """Return indices drawn from each row's categorical distribution, given by its logits."""
    scores = need_tensor(logits, "random_categorical").asnumpy().astype(np.float64)

    def values(generator: Any) -> Array:
        noise = generator.gumbel(size=(scores.shape[0], num_sample, scores.shape[1]))
        return np.asarray((scores[:, None] + noise).argmax(-1))

    return drawn("random_categorical", values, dtype, seed or None)


def gumbel_softmax(logits: Any, tau: float = 1.0, hard: bool = False, dim: int = -1) -> Tensor:
    """Return random weights that sum to 1 along ``dim``, the greater where ``logits`` are.

    Near a temperature ``tau`` of 0 one weight is near 1; with ``hard`` it is 1 and the others are 0.
    """
    tensor = need_tensor(logits, "gumbel_softmax")
    if not isinstance(tau, float) or tau <= 0:
        raise ArgumentValueError(f"tau of gumbel_softmax is {tau!r}", "give a float above 0")
    noise = drawn("gumbel_softmax", lambda generator: generator.gumbel(size=tensor.shape), tensor.dtype)
    weights = softmax(div(add(tensor, noise), tau), dim)
    if not hard:
        return weights
    place = axis_in(dim, weights.ndim, "gumbel_softmax")
    return cast(one_hot(argmax(weights, place), weights.shape[place], 1.0, 0.0, place), weights.type.dtype)


def choice_with_mask(input_x: Any, count: int = 256, seed: Any = None) -> tuple[Tensor, Tensor]:
    """Return the places of ``count`` true elements in random order, and which of these there are."""
    places = np.argwhere(need_tensor(input_x, "choice_with_mask").asnumpy())

    def values(generator: Any) -> Array:
        chosen = generator.permutation(places)[:count]
        return np.concatenate([chosen, np.zeros((count - len(chosen), places.shape[1]), np.int64)])

    chosen = drawn("choice_with_mask", values, np.int32, seed)
    return chosen, Tensor.of(np.arange(count) < len(places))


def rrelu(input: Any, lower: float = 1 / 8, upper: float = 1 / 3) -> Tensor:
    """Return ``input`` where it is not negative, elsewhere times slopes that each call draws, as in MindSpore."""
    if lower > upper:
        raise ArgumentValueError(f"rrelu from {lower} to {upper}", "lower must not be above upper")
    x = need_tensor(input, "rrelu")
    slopes = lower if lower == upper else drawn("rrelu", lambda g: g.uniform(lower, upper, x.shape), x.dtype)
    return where(less(x, 0), mul(x, slopes), x)


def dropout(input: Any, p: float = 0.5, training: bool = True, seed: int | None = None) -> Tensor:
    """Return the tensor, in training with elements zeroed at random and the others divided by ``1 - p``.

    Args:
        input: The tensor.
        p: The probability that an element is zeroed.
        training: Whether anything is zeroed.
        seed: Draws the same elements in each call; None draws others, from the generator of ``set_seed``.
    """
    tensor = need_tensor(input, "dropout")
    return mul(tensor, _kept(tensor, tensor.shape, p, seed)) if training and p else tensor


def _of_channels(rank: int) -> Callable[..., Tensor]:
    def function(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
        tensor = need_tensor(input, f"dropout{rank}d")
        if not training or not p:
            return tensor
        lead = tensor.shape[: max(tensor.ndim - rank, 0)]
        return mul(tensor, _kept(tensor, (*lead, *[1] * (tensor.ndim - len(lead))), p))

    return formula(f"the tensor, in training with whole channels of {rank} dimensions zeroed", function)


def dropped(x: Any, keep_prob: float, mask: str, rank: int = 0) -> tuple[Tensor, Tensor]:
    """Return the tensor with elements, or channels of ``rank`` dimensions, zeroed, and a mask of those kept."""
    tensor = need_tensor(x, "Dropout")
    share = _kept(tensor, (*tensor.shape[: tensor.ndim - rank], *[1] * rank), 1.0 - keep_prob)
    return mul(tensor, share), cast(broadcast_to(greater(share, 0), tensor.shape), mask)


def _kept(tensor: Tensor, shape: Sequence[int], p: float, seed: int | None = None) -> Tensor:
    """Return, in the tensor's element type, 0 with probability ``p``, and else the factor that keeps the mean.

    In a network it is an input that is drawn before each call, so both modes draw the same.
    """
    if not 0 <= p <= 1:
        raise ArgumentValueError(f"p of dropout is {p}", "give a number from 0 to 1")
    type_ = TensorType(tensor.type.dtype, tuple(shape))

    def draw() -> Array:
        generator = initializer.generator() if seed is None else np.random.default_rng(seed)
        kept = generator.random(type_.shape, np.float32) >= np.float32(p)
        return np.asarray(kept * np.float32(0 if p == 1 else 1 / (1 - p))).astype(type_.dtype)

    drawn = Drawn(type_, draw)
    if current() is not None:
        return Tensor.of(need_states().draw(drawn))
    return Tensor.of(drawn.asnumpy())


rand = _sampler("rand", "random", "evenly from [0, 1)")
randn = _sampler("randn", "standard_normal", "from the normal distribution of mean 0 and deviation 1")
rand_like, randn_like = _like(rand), _like(randn)
standard_laplace = spelled(laplace, "Return numbers drawn from the Laplace distribution of mean 0 and scale 1.",
    {"mean": 0.0, "lambda_param": 1.0})  # fmt: skip
standard_normal = spelled(normal, "Return numbers drawn from the normal distribution of mean 0 and deviation 1.",
    {"mean": 0.0, "stddev": 1.0})  # fmt: skip
dropout1d, dropout2d, dropout3d = map(_of_channels, (1, 2, 3))
randint_like = formula("``randint`` in the shape (and type) of a tensor",
    of_tensor(lambda input, low, high, seed=None, *, dtype=None:
        randint(low, high, input.shape, seed, dtype=dtype or input.dtype)))  # fmt: skip
randperm = formula("the integers below ``n`` in random order",
    lambda n, seed=0, offset=0, dtype=np.int64:
        drawn("randperm", lambda generator: generator.permutation(int(n)), dtype, seed or None))  # fmt: skip
shuffle = formula("the slices along axis 0 in random order",
    of_tensor(lambda x, seed=None:
        drawn("shuffle", lambda generator: generator.permutation(x.asnumpy()), x.dtype, seed)))  # fmt: skip

names.export(vars(), but="drawn dropped shape_of")
