"""Random generators of ``mindspore``: seeds and states of the source of random tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.mindspore import initializer
from opbuild.mindspore.arguments import ArgumentTypeError
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "Generator", "default_generator", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state",
]  # fmt: skip
_WORDS = ("state", "inc")


def manual_seed(seed: int) -> Generator:
    """Make the random tensors that follow repeatable."""
    initializer.set_seed(seed)
    return default_generator


def seed() -> int:
    """Begin at a random seed and return it."""
    drawn = int(np.random.default_rng().integers(2**31))
    initializer.set_seed(drawn)
    return drawn


def initial_seed() -> int:
    """Return the seed that the generator began at: a random one, if none was set."""
    known = initializer.get_seed()
    return seed() if known is None else known


def get_rng_state() -> Tensor:
    """Return the state of the generator as a tensor of bytes."""
    held: Any = initializer.generator().bit_generator.state
    numbers = [held["state"][word] for word in _WORDS]
    octets = b"".join(number.to_bytes(16, "little") for number in numbers)
    octets += held["has_uint32"].to_bytes(4, "little") + held["uinteger"].to_bytes(4, "little")
    return Tensor.of(np.frombuffer(octets, np.uint8).copy())


def set_rng_state(state: Any) -> None:
    """Continue from a state that ``get_rng_state`` returned."""
    if not isinstance(state, Tensor) or state.shape != (40,):
        raise ArgumentTypeError("set_rng_state was given no state", "give what get_rng_state returned")
    octets = state.asnumpy().tobytes()
    held: Any = initializer.generator().bit_generator.state
    for index, word in enumerate(_WORDS):
        held["state"][word] = int.from_bytes(octets[16 * index : 16 * index + 16], "little")
    held["has_uint32"], held["uinteger"] = (int.from_bytes(octets[i : i + 4], "little") for i in (32, 36))
    initializer.generator().bit_generator.state = held


class Generator:
    """The generator that random tensors are drawn from: there is one, whichever object is asked."""

    def manual_seed(self, seed: int) -> Generator:
        """Make the random tensors that follow repeatable."""
        manual_seed(seed)
        return self

    seed, initial_seed = staticmethod(seed), staticmethod(initial_seed)
    get_state, set_state = staticmethod(get_rng_state), staticmethod(set_rng_state)


default_generator = Generator()
