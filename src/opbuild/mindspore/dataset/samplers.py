"""Samplers: which rows of a source that can be indexed are read, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.dataset import config
from opbuild.platform.records import dataclass


@dataclass(frozen=True)
class Epoch:
    """One pass over the rows.

    Attributes:
        number: How many passes there were before, from 0 on.
        random: What is drawn from; the same for all parts of a pipeline.
    """

    number: int
    random: np.random.Generator


def epoch_of(number: int, seed: int | None) -> Epoch:
    """Return the epoch of a number: a seed decides its random numbers, if there is one."""
    return Epoch(number, np.random.default_rng(None if seed is None else (seed, number)))


class Sampler:
    """Every row, in order; other samplers derive from it, those of programs too: ``__iter__`` gives places.

    Args:
        num_samples: How many rows to read at most; None for all.
    """

    def __init__(self, num_samples: int | None = None) -> None:
        if num_samples is not None and num_samples < 0:
            raise ArgumentValueError(f"num_samples of {type(self).__name__} is {num_samples}", "give at least 0")
        self.num_samples = num_samples

    def chosen(self, size: int, epoch: Epoch) -> Iterable[int]:
        """Return the places to read of a source of ``size`` rows, before ``num_samples`` ends it."""
        own = getattr(self, "__iter__", None)
        return own() if own is not None else range(size)

    def places(self, size: int, epoch: Epoch) -> Iterator[int]:
        """Yield the places to read.

        Raises:
            ArgumentValueError: If one is not there.
        """
        for count, place in enumerate(self.chosen(size, epoch)):
            if self.num_samples and count >= self.num_samples:
                return
            if not -size <= place < size:
                raise ArgumentValueError(f"{type(self).__name__} asks for row {place}", f"there are {size} rows")
            yield int(place)

    def count(self, size: int) -> int:
        """Return the number of rows read of ``size``."""
        found = self.available(size)
        return min(found, self.num_samples) if self.num_samples else found

    def available(self, size: int) -> int:
        """Return the number of rows without ``num_samples``."""
        own = getattr(self, "__iter__", None)
        return size if own is None else sum(1 for _ in own())


class SequentialSampler(Sampler):
    """Rows in order, from ``start_index`` on."""

    def __init__(self, start_index: int | None = None, num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        self.start_index = start_index or 0

    def chosen(self, size: int, epoch: Epoch) -> Iterable[int]:
        """See ``Sampler``."""
        return range(self.start_index, size)

    def available(self, size: int) -> int:
        """See ``Sampler``."""
        return max(size - self.start_index, 0)


class RandomSampler(Sampler):
    """Rows in random order, another one in each epoch; with ``replacement`` a row may come several times."""

    def __init__(self, replacement: bool = False, num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        self.replacement = replacement

    def chosen(self, size: int, epoch: Epoch) -> Iterable[int]:
        """See ``Sampler``."""
        if self.replacement:
            return list(epoch.random.integers(0, size, self.num_samples or size))
        return list(epoch.random.permutation(size))

    def count(self, size: int) -> int:
        """See ``Sampler``."""
        return self.num_samples or size if self.replacement else super().count(size)


class SubsetSampler(Sampler):
    """The rows that are named, in that order."""

    def __init__(self, indices: Sequence[int], num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        self.indices = [int(each) for each in indices]

    def chosen(self, size: int, epoch: Epoch) -> Iterable[int]:
        """See ``Sampler``."""
        return self.indices

    def available(self, size: int) -> int:
        """See ``Sampler``."""
        return len(self.indices)


class SubsetRandomSampler(SubsetSampler):
    """The rows that are named, in random order."""

    def chosen(self, size: int, epoch: Epoch) -> Iterable[int]:
        """See ``Sampler``."""
        return list(epoch.random.permutation(self.indices))


class WeightedRandomSampler(Sampler):
    """Rows drawn with a probability that is their weight's share of all."""

    def __init__(self, weights: Sequence[float], num_samples: int | None = None, replacement: bool = True) -> None:
        super().__init__(num_samples)
        self.weights, self.replacement = np.asarray(weights, np.float64), replacement
        if self.weights.ndim != 1 or (self.weights < 0).any() or not self.weights.sum() > 0:
            raise ArgumentValueError("the weights of WeightedRandomSampler are no probabilities", "give numbers from 0")

    def chosen(self, size: int, epoch: Epoch) -> Iterable[int]:
        """See ``Sampler``."""
        shares = self.weights / self.weights.sum()
        return list(epoch.random.choice(len(shares), self.available(size), self.replacement, shares))

    def available(self, size: int) -> int:
        """See ``Sampler``."""
        return self.num_samples or len(self.weights)


class DistributedSampler(Sampler):
    """Every ``num_shards``-th row, for one of several ranks; where rows do not divide, the first ones come again.

    All ranks draw one order, from the seed (0 without one) and the epoch, so no row is read by two.

    Args:
        num_shards: The number of ranks.
        shard_id: The rank.
        shuffle: Whether the order is random.
        num_samples: How many rows to read at most.
    """

    def __init__(self, num_shards: int, shard_id: int, shuffle: bool = True, num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        if num_shards < 1 or not 0 <= shard_id < num_shards:
            raise ArgumentValueError(
                f"num_shards is {num_shards} and shard_id is {shard_id}", "shards are numbered from 0"
            )
        self.num_shards, self.shard_id, self.shuffle = num_shards, shard_id, shuffle

    def chosen(self, size: int, epoch: Epoch) -> Iterable[int]:
        """See ``Sampler``."""
        order = np.arange(size)
        if self.shuffle:
            order = np.random.default_rng((config.get_seed() or 0, epoch.number)).permutation(size)
        places = self.shard_id + self.num_shards * np.arange(self.available(size))
        return [int(order[place % size]) for place in places]

    def available(self, size: int) -> int:
        """See ``Sampler``."""
        return -(-size // self.num_shards)
