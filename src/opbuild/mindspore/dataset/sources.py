"""Sources of rows, objects of programs and arrays, and samplers: which rows are read, in which order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.dataset import config
from opbuild.mindspore.dataset.pipeline import Dataset, Epoch, Row, to_array
from opbuild.mindspore.dtype import to_type


class Sampler:
    """Every row, in order; other samplers derive from it, those of programs too: ``__iter__`` gives places.

    Args:
        num_samples: How many rows to read at most; None for all.
    """

    def __init__(self, num_samples: int | None = None) -> None:
        if num_samples is not None and num_samples < 0:
            raise ArgumentValueError(f"num_samples of {type(self).__name__} is {num_samples}", "give at least 0")
        self.num_samples = num_samples

    def _chosen(self, size: int, epoch: Epoch) -> Iterable[int]:
        """Return the places to read of a source of ``size`` rows, before ``num_samples`` ends it."""
        own = getattr(self, "__iter__", None)
        return own() if own is not None else range(size)

    def places(self, size: int, epoch: Epoch) -> Iterator[int]:
        """Yield the places to read."""
        for count, place in enumerate(self._chosen(size, epoch)):
            if self.num_samples and count >= self.num_samples:
                return
            if not -size <= place < size:
                raise ArgumentValueError(f"{type(self).__name__} asks for row {place}", f"there are {size} rows")
            yield int(place)

    def count(self, size: int) -> int:
        """Return the number of rows read of ``size``."""
        found = self._available(size)
        return min(found, self.num_samples) if self.num_samples else found

    def _available(self, size: int) -> int:
        """Return the number of rows without ``num_samples``."""
        own = getattr(self, "__iter__", None)
        return size if own is None else sum(1 for _ in own())


class SequentialSampler(Sampler):
    """Rows in order, from ``start_index`` on."""

    def __init__(self, start_index: int | None = None, num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        self.start_index = start_index or 0

    def _chosen(self, size: int, epoch: Epoch) -> Iterable[int]:
        return range(self.start_index, size)

    def _available(self, size: int) -> int:
        return max(size - self.start_index, 0)


class RandomSampler(Sampler):
    """Rows in random order, another one in each epoch; with ``replacement`` a row may come several times."""

    def __init__(self, replacement: bool = False, num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        self.replacement = replacement

    def _chosen(self, size: int, epoch: Epoch) -> Iterable[int]:
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

    def _chosen(self, size: int, epoch: Epoch) -> Iterable[int]:
        return self.indices

    def _available(self, size: int) -> int:
        return len(self.indices)


class SubsetRandomSampler(SubsetSampler):
    """The rows that are named, in random order."""

    def _chosen(self, size: int, epoch: Epoch) -> Iterable[int]:
        return list(epoch.random.permutation(self.indices))


class WeightedRandomSampler(Sampler):
    """Rows drawn with a probability that is their weight's share of all."""

    def __init__(self, weights: Sequence[float], num_samples: int | None = None, replacement: bool = True) -> None:
        super().__init__(num_samples)
        self.weights, self.replacement = np.asarray(weights, np.float64), replacement
        if self.weights.ndim != 1 or (self.weights < 0).any() or not self.weights.sum() > 0:
            raise ArgumentValueError("the weights of WeightedRandomSampler are no probabilities", "give numbers from 0")

    def _chosen(self, size: int, epoch: Epoch) -> Iterable[int]:
        shares = self.weights / self.weights.sum()
        return list(epoch.random.choice(len(shares), self._available(size), self.replacement, shares))

    def _available(self, size: int) -> int:
        return self.num_samples or len(self.weights)


class DistributedSampler(Sampler):
    """Every ``num_shards``-th row, for one of several ranks; where rows do not divide, the first ones come again.

    All ranks draw one order, from the seed (0 without one) and the epoch, so no row is read by two.

    Args:
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

    def _chosen(self, size: int, epoch: Epoch) -> Iterable[int]:
        order = np.arange(size)
        if self.shuffle:
            order = np.random.default_rng((config.get_seed() or 0, epoch.number)).permutation(size)
        places = self.shard_id + self.num_shards * np.arange(self._available(size))
        return [int(order[place % size]) for place in places]

    def _available(self, size: int) -> int:
        return -(-size // self.num_shards)


class GeneratorDataset(Dataset):
    """Rows that a program's object gives.

    Args:
        source: Something with ``__getitem__`` and ``__len__``; something that can be iterated; or a function that
            returns such a thing for each epoch.
        column_names: The columns' names: a row is a tuple of as many values, or one value.
        column_types: The columns' element types; None: those of the values.
        schema: Not supported.
        num_samples: How many rows to read at most.
        num_parallel_workers: Kept for programs that give it: rows are made in the calling thread.
        shuffle: Whether rows of a source that has ``__getitem__`` come in random order: by default they do.
        sampler: A sampler, or places, instead of ``shuffle``.
        num_shards: How many ranks share the rows; each takes its part.
        options: MindSpore's further options of workers; they change nothing here.
    """

    def __init__(self, source: Any, column_names: Any = None, column_types: Any = None, schema: Any = None,
                 num_samples: int | None = None, num_parallel_workers: int = 1, shuffle: bool | None = None,
                 sampler: Any = None, num_shards: int | None = None, shard_id: int | None = None,
                 **options: Any) -> None:  # fmt: skip
        if column_names is None or schema is not None:
            raise ArgumentValueError("GeneratorDataset was given no column_names", "give names; there are no schemas")
        super().__init__([column_names] if isinstance(column_names, str) else list(column_names))
        if not (callable(source) or hasattr(source, "__iter__") or hasattr(source, "__getitem__")):
            raise ArgumentTypeError(f"the source of GeneratorDataset is a {type(source).__name__}",
                                    "give something to iterate or to index, or a function that returns it")  # fmt: skip
        self._source = source
        self._types = None if column_types is None else [to_type(each).name for each in column_types]
        self._indexed = hasattr(source, "__getitem__") and hasattr(source, "__len__")
        if not self._indexed and (sampler is not None or shuffle):
            raise ArgumentValueError("a source that is only iterated has an order of its own",
                                     "give it __getitem__ and __len__, or use .shuffle(buffer_size)")  # fmt: skip
        self._samples, self._shard = num_samples, (num_shards, shard_id)
        self._sampler = _sampler(sampler, shuffle, num_samples, num_shards, shard_id)

    def rows(self, epoch: Epoch) -> Iterator[Row]:
        """Yield the rows of an epoch."""
        if self._indexed:
            places = self._sampler.places(len(self._source), epoch)
            return (self._row(self._source[place]) for place in places)
        return self._iterated()

    def get_dataset_size(self) -> int:
        """Return the number of rows; those of a source without ``__len__`` are counted."""
        return self._sampler.count(len(self._source)) if self._indexed else super().get_dataset_size()

    def _iterated(self) -> Iterator[Row]:
        shards, own = self._shard[0] or 1, self._shard[1] or 0
        given = 0
        for number, value in enumerate(self._source() if callable(self._source) else iter(self._source)):
            if self._samples and given >= self._samples:
                return
            if number % shards == own:
                given += 1
                yield self._row(value)

    def _row(self, value: Any) -> Row:
        values = value if isinstance(value, tuple) else (value,)
        if len(values) != len(self._columns):
            raise ArgumentValueError(f"a row of GeneratorDataset has {len(values)} values",
                                     f"there are {len(self._columns)} column_names: {list(self._columns)}")  # fmt: skip
        arrays = [to_array(each) for each in values]
        if self._types is not None:
            arrays = [array.astype(name) for array, name in zip(arrays, self._types, strict=True)]
        return tuple(arrays)


class NumpySlicesDataset(GeneratorDataset):
    """Rows of arrays or lists, which are cut along the first dimension.

    Args:
        data: A dictionary of columns, a tuple of columns, or one column.
        column_names: Their names; by default the dictionary's keys, else ``column_0`` and so on.
        num_samples: As of ``GeneratorDataset``, as the others.
    """

    def __init__(self, data: Any, column_names: Any = None, num_samples: int | None = None,
                 num_parallel_workers: int = 1, shuffle: bool | None = None, sampler: Any = None,
                 num_shards: int | None = None, shard_id: int | None = None) -> None:  # fmt: skip
        if isinstance(data, Mapping):
            column_names = list(data) if column_names is None else column_names
            data = tuple(data.values())
        columns = [to_array(each) for each in (data if isinstance(data, tuple) else (data,))]
        if not columns or any(not each.ndim or len(each) != len(columns[0]) for each in columns):
            raise ArgumentValueError(f"columns of the shapes {[each.shape for each in columns]}",
                                     "give columns of equal lengths")  # fmt: skip
        given = [f"column_{place}" for place in range(len(columns))] if column_names is None else column_names
        super().__init__(_Slices(columns), given, None, None, num_samples, num_parallel_workers, shuffle, sampler,
                         num_shards, shard_id)  # fmt: skip


class _Slices:
    """Arrays as rows."""

    def __init__(self, columns: Sequence[np.ndarray[Any, Any]]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, place: int) -> tuple[Any, ...]:
        return tuple(column[place] for column in self._columns)


class _Given(Sampler):
    """The places that a program's object gives."""

    def __init__(self, places: Any, num_samples: int | None) -> None:
        super().__init__(num_samples)
        self._places = places

    def _chosen(self, size: int, epoch: Epoch) -> Any:
        return self._places

    def _available(self, size: int) -> int:
        return len(list(self._places))


def _sampler(given: Any, shuffle: bool | None, samples: int | None, shards: int | None, shard: int | None) -> Sampler:
    if (shards is None) != (shard is None):
        raise ArgumentValueError(f"num_shards is {shards} and shard_id is {shard}", "give both")
    if given is not None:
        if shuffle is not None or shards is not None:
            raise ArgumentValueError("a sampler was given beside shuffle or num_shards", "give one of them")
        return given if isinstance(given, Sampler) else _Given(given, samples)
    if shards is not None and shard is not None:
        return DistributedSampler(shards, shard, shuffle is not False, samples)
    return SequentialSampler(num_samples=samples) if shuffle is False else RandomSampler(num_samples=samples)


names.export(vars())
