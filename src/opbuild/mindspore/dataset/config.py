"""``dataset.config``: the seed of random numbers while rows are read, and settings that are only kept."""

from __future__ import annotations

from typing import Any

from opbuild.mindspore import initializer
from opbuild.mindspore.arguments import natural

_SETTINGS: dict[str, Any] = {"seed": None, "num_parallel_workers": 8, "prefetch_size": 16}


def set_seed(seed: int) -> None:
    """Make the order of shuffled rows repeatable, beginning with the next iterator."""
    _SETTINGS["seed"] = natural(seed, "the seed of dataset.config.set_seed", 0)


def get_seed() -> int | None:
    """Return the seed: the one set here, else that of ``mindspore.set_seed``; None if there is none."""
    seed: int | None = _SETTINGS["seed"]
    return initializer.get_seed() if seed is None else seed


def set_num_parallel_workers(num: int) -> None:
    """Keep the number: rows are made one after the other, in the calling thread."""
    _SETTINGS["num_parallel_workers"] = num


def get_num_parallel_workers() -> int:
    """Return the number that was set."""
    return int(_SETTINGS["num_parallel_workers"])


def set_prefetch_size(size: int) -> None:
    """Keep the number: nothing is read ahead."""
    _SETTINGS["prefetch_size"] = size


def get_prefetch_size() -> int:
    """Return the number that was set."""
    return int(_SETTINGS["prefetch_size"])
