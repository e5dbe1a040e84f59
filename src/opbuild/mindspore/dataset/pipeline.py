"""Pipelines of rows: a source, and operations on its rows one after the other. Nothing runs ahead of the reader."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, islice
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, natural
from opbuild.mindspore.dataset import config
from opbuild.mindspore.tensor import Tensor
from opbuild.platform.records import dataclass

Row = tuple[Array, ...]


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


@dataclass(frozen=True)
class BatchInfo:
    """The facts of a batch that ``per_batch_map`` is given."""

    number: int
    epoch: int

    def get_batch_num(self) -> int:
        """Return the number of batches before it in the epoch."""
        return self.number

    def get_epoch_num(self) -> int:
        """Return the number of epochs before it."""
        return self.epoch


def to_array(value: Any) -> Array:
    """Return a value of a row as an array."""
    return value.asnumpy() if isinstance(value, Tensor) else np.asarray(value)


def to_tensor(value: Array) -> Any:
    """Return an array as a tensor; texts stay arrays."""
    return value if value.dtype.kind in "USO" else Tensor.of(np.ascontiguousarray(value).reshape(value.shape))


def listed(columns: Any) -> list[str]:
    """Return names of columns as a list."""
    return [columns] if isinstance(columns, str) else list(columns)


def exchanged(row: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> tuple[Any, ...]:
    """Return a row with values at these places; if their number differs, all stand where the first was."""
    if len(places) == len(values):
        new = dict(builtins.zip(places, values, strict=True))
        return tuple(new.get(place, value) for place, value in enumerate(row))
    kept = [(place, value) for place, value in enumerate(row) if place not in places]
    before = [value for place, value in kept if place < min(places)]
    return (*before, *values, *(value for place, value in kept if place > min(places)))


def fits(what: str, values: Sequence[Any], outputs: Sequence[str]) -> None:
    """Refuse values that are not one for each column."""
    if len(values) != len(outputs):
        raise ArgumentValueError(
            f"{what} gave {len(values)} values for the columns {list(outputs)}", "say output_columns"
        )


def stacked(name: str, values: Iterable[Any]) -> Array:
    """Return the rows of a column, which must have one shape, as one array."""
    arrays = [to_array(value) for value in values]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ArgumentValueError(
            f"the rows of column {name!r} have the shapes {sorted(shapes)}, and are put into one batch",
            "make them equal with map or per_batch_map",
        )
    return np.stack(arrays)


def shuffled(rows: Iterator[Row], epoch: Epoch, size: int) -> Iterator[Row]:
    """Yield rows drawn from a buffer that is filled up with the next one."""
    buffer = list(islice(rows, size))
    for row in rows:
        place = int(epoch.random.integers(len(buffer)))
        yield buffer[place]
        buffer[place] = row
    yield from (buffer[place] for place in epoch.random.permutation(len(buffer)))


Change = Callable[[Iterator[Row], Epoch], Iterator[Row]]
"""Makes an epoch's rows of a part; of the rows of the whole in that epoch, which it is given, it takes none."""


def parts(
    rows_of: Callable[[Epoch], Iterator[Row]], whole: int, sizes: Sequence[int] | Sequence[float], randomize: bool
) -> list[tuple[Change, int]]:
    """Return the makers of the rows of each part, and how many rows each has; see ``Dataset.split``.

    Parts are made of the rows of one epoch, whose order does not change: no row wanders from one to another.
    """
    counts, seed = _counts(sizes, whole), config.get_seed()
    drawn = int(np.random.default_rng().integers(2**31)) if seed is None else seed
    order = np.random.default_rng((drawn, 0)).permutation(whole) if randomize else np.arange(whole)

    def change(places: np.ndarray[Any, Any]) -> Change:
        def chosen(_: Iterator[Row], epoch: Epoch) -> Iterator[Row]:
            every = list(rows_of(epoch_of(0, drawn)))
            return (every[place] for place in (epoch.random.permutation(places) if randomize else places))

        return chosen

    ends = accumulate(counts)
    return [(change(order[end - count : end]), count) for count, end in builtins.zip(counts, ends, strict=True)]


def _counts(sizes: Sequence[int] | Sequence[float], whole: int) -> list[int]:
    """Return the number of rows of each part; rows left over by rounding go to the first ones."""
    error = ArgumentValueError(
        f"split of {whole} rows into {list(sizes)}", f"give integers that make {whole}, or floats that make 1"
    )
    if not sizes or any(isinstance(size, bool) or size <= 0 for size in sizes):
        raise error
    if all(isinstance(size, int) for size in sizes):
        if sum(sizes) != whole:
            raise error
        return [int(size) for size in sizes]
    if abs(sum(sizes) - 1) > 1e-9:
        raise error
    counts = [round(size * whole) for size in sizes]
    for place in range(abs(left := whole - sum(counts))):
        counts[place % len(counts)] += 1 if left > 0 else -1
    if min(counts) < 1:
        raise error
    return counts


class Dataset:
    """Rows of named columns; each pass over them is an epoch."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)

    def rows(self, epoch: Epoch) -> Iterator[Row]:
        """Yield the rows of an epoch; every kind of data set has its own."""
        raise NotImplementedError

    def get_dataset_size(self) -> int:
        """Return the number of rows of an epoch, batches where rows are batched."""
        return sum(1 for _ in self.rows(epoch_of(0, config.get_seed())))

    def get_col_names(self) -> list[str]:
        """Return the columns' names."""
        return list(self._columns)

    def get_batch_size(self) -> int:
        """Return the number of rows in a batch; 1 where none are made."""
        return 1

    def get_repeat_count(self) -> int:
        """Return the number of times that an epoch repeats the rows."""
        return 1

    def output_shapes(self, estimate: bool = False) -> list[list[int]]:
        """Return each column's shape in the first row."""
        return [list(value.shape) for value in self._first()]

    def output_types(self) -> list[Any]:
        """Return each column's numpy type in the first row."""
        return [value.dtype.type for value in self._first()]

    def __len__(self) -> int:
        return self.get_dataset_size()

    def __iter__(self) -> Rows:
        return self.create_tuple_iterator(num_epochs=1)

    def create_dict_iterator(self, num_epochs: int = -1, output_numpy: bool = False, do_copy: bool = True) -> Rows:
        """Return an iterator over rows as dictionaries by column; each loop over it is an epoch.

        Args:
            num_epochs: How many epochs there are at most; -1: any number.
            output_numpy: Whether to give arrays instead of tensors.
            do_copy: Kept for programs that give it.
        """
        return Rows(self, lambda row: dict(builtins.zip(self._columns, row, strict=True)), num_epochs, output_numpy)

    def create_tuple_iterator(self, columns: Sequence[str] | None = None, num_epochs: int = -1,
                              output_numpy: bool = False, do_copy: bool = True) -> Rows:  # fmt: skip
        """Return an iterator over rows as lists; each loop over it is an epoch.

        It gives ``columns``, in this order, or all; other arguments are those of ``create_dict_iterator``.
        """
        return Rows(self if columns is None else self.project(columns), list, num_epochs, output_numpy)

    def batch(self, batch_size: int, drop_remainder: bool = False, num_parallel_workers: int | None = None,
              per_batch_map: Callable[..., Any] | None = None, input_columns: Any = None, output_columns: Any = None,
              **options: Any) -> Dataset:  # fmt: skip
        """Return batches: ``batch_size`` rows stacked, the last ones fewer unless ``drop_remainder``.

        Args:
            batch_size: The number of rows.
            drop_remainder: Whether fewer rows than that at the end are left out.
            num_parallel_workers: Kept for programs that give it.
            per_batch_map: Called with a list of arrays for each of the input columns, and a ``BatchInfo``; returns such
                lists.
            input_columns: The columns that it is called with; all by default.
            output_columns: The columns that it gives; the same by default.
            options: MindSpore's further options of workers; they change nothing here.
        """
        natural(batch_size, "batch_size", 1)
        return _Batched(self, batch_size, drop_remainder, per_batch_map, input_columns, output_columns)

    def map(self, operations: Any, input_columns: Any = None, output_columns: Any = None,
            num_parallel_workers: int | None = None, **options: Any) -> Dataset:  # fmt: skip
        """Return rows with columns computed by functions, one after the other.

        Args:
            operations: A function or several: the first is called with the input columns, each other with what the one
                before returned.
            input_columns: A name or several; the first column by default.
            output_columns: What the results are called; as the input columns by default.
            num_parallel_workers: Kept for programs that give it.
            options: MindSpore's further options of workers; they change nothing here.
        """
        chain = list(operations) if isinstance(operations, (list, tuple)) else [operations]
        if not chain or not all(callable(each) for each in chain):
            raise ArgumentTypeError("map was given no function", "give a function, or a list of them")
        return _Mapped(self, chain, self._columns[:1] if input_columns is None else input_columns, output_columns)

    def shuffle(self, buffer_size: int) -> Dataset:
        """Return the rows in random order: each is drawn from the next ``buffer_size`` ones."""
        natural(buffer_size, "buffer_size of shuffle", 2)
        return _Derived(self, lambda rows, epoch: shuffled(rows, epoch, buffer_size), lambda size: size)

    def repeat(self, count: int | None = None) -> Dataset:
        """Return epochs of ``count`` times the rows; None or -1: they have no end."""
        if count is not None and count != -1 and count < 1:
            raise ArgumentValueError(f"count of repeat is {count}", "give at least 1, or -1")
        return _Repeated(self, -1 if count is None else count)

    def skip(self, count: int) -> Dataset:
        """Return the rows without the first ``count``."""
        return _Derived(self, lambda rows, _: islice(rows, count, None), lambda size: max(size - count, 0))

    def take(self, count: int = -1) -> Dataset:
        """Return the first ``count`` rows; -1: all."""
        end = None if count == -1 else count
        return _Derived(self, lambda rows, _: islice(rows, end), lambda size: size if end is None else min(size, end))

    def filter(self, predicate: Callable[..., Any], input_columns: Any = None,
               num_parallel_workers: int | None = None) -> Dataset:  # fmt: skip
        """Return the rows for which ``predicate`` of the input columns (all by default) is true."""
        places = self._places(self._columns if input_columns is None else input_columns, "filter")

        def kept(rows: Iterator[Row], epoch: Epoch) -> Iterator[Row]:
            return (row for row in rows if predicate(*(row[place] for place in places)))

        return _Derived(self, kept, None)

    def project(self, columns: Any) -> Dataset:
        """Return some of the columns, in this order."""
        places = self._places(columns, "project")

        def chosen(rows: Iterator[Row], epoch: Epoch) -> Iterator[Row]:
            return (tuple(row[place] for place in places) for row in rows)

        return _Derived(self, chosen, lambda size: size, [self._columns[place] for place in places])

    def rename(self, input_columns: Any, output_columns: Any) -> Dataset:
        """Return the rows with other names of columns."""
        given = listed(output_columns)
        new = dict(builtins.zip(self._places(input_columns, "rename"), given, strict=True))
        columns = [new.get(place, name) for place, name in enumerate(self._columns)]
        return _Derived(self, lambda rows, _: rows, lambda size: size, columns)

    def zip(self, datasets: Any) -> Dataset:
        """Return the columns of several data sets side by side, as long as each has rows."""
        return zip((self, *(datasets if isinstance(datasets, tuple) else (datasets,))))

    def concat(self, datasets: Any) -> Dataset:
        """Return the rows of several data sets, one after the other."""
        parts = [self, *(datasets if isinstance(datasets, (list, tuple)) else [datasets])]
        if any(part._columns != self._columns for part in parts):
            raise ArgumentValueError(f"concat of columns {[part._columns for part in parts]}", "they must be equal")
        return _Several(parts, self._columns, chain.from_iterable, sum)

    __add__ = concat

    def split(self, sizes: Sequence[int] | Sequence[float], randomize: bool = True) -> list[Dataset]:
        """Return parts of the rows, which share none: numbers of rows, or shares that make 1 together.

        Args:
            sizes: The sizes, all integers or all floats.
            randomize: Whether the rows of each part are drawn, and shuffled in each epoch; else they follow each other.
        """
        found = parts(self.rows, self.get_dataset_size(), sizes, randomize)
        return [_Derived(self, change, partial(min, count)) for change, count in found]  # the whole has no fewer

    def _first(self) -> Row:
        for row in self.rows(epoch_of(0, config.get_seed())):
            return row
        raise ArgumentValueError("a data set without rows was asked for its shapes or types", "give it rows")

    def _places(self, columns: Any, what: str) -> list[int]:
        wanted = listed(columns)
        for name in wanted:
            if name not in self._columns:
                raise ArgumentValueError(f"{what} names the column {name!r}", f"there are {list(self._columns)}")
        return [self._columns.index(name) for name in wanted]


class Rows:
    """The rows of epochs, as an iterable.

    Args:
        form: Makes a row what is given.
        epochs: How many epochs there are; -1: any number.
        as_arrays: Whether columns are arrays, not tensors.
        first: The number of epochs before: a run that goes on reads what it would have read.
    """

    def __init__(
        self, dataset: Dataset, form: Callable[[Any], Any], epochs: int, as_arrays: bool, first: int = 0
    ) -> None:
        if epochs != -1 and epochs < 1:
            raise ArgumentValueError(f"num_epochs is {epochs}", "give at least 1, or -1")
        self._dataset, self._form, self._as_arrays = dataset, form, as_arrays
        self._number, self._last = first, first + epochs if epochs != -1 else -1
        self._seed = config.get_seed()
        self._current: Iterator[Row] | None = None

    def __iter__(self) -> Rows:
        return self

    def __next__(self) -> Any:
        if self._current is None:
            if self._number == self._last:
                raise StopIteration
            self._current = self._dataset.rows(epoch_of(self._number, self._seed))
        row = next(self._current, None)
        if row is None:
            self._current, self._number = None, self._number + 1
            raise StopIteration
        return self._form([value if self._as_arrays else to_tensor(value) for value in row])

    def get_next(self) -> Any:
        """Return the next row."""
        return next(self)


def zip(datasets: tuple[Dataset, ...]) -> Dataset:
    """Return the columns of several data sets side by side, as long as each has rows."""
    columns = [name for part in datasets for name in part._columns]
    if len(set(columns)) < len(columns):
        raise ArgumentValueError(f"zip of columns {columns}", "rename those of equal names")

    def side_by_side(every: Iterator[Iterator[Row]]) -> Iterator[Row]:
        return (tuple(chain.from_iterable(rows)) for rows in builtins.zip(*every, strict=False))

    return _Several(datasets, columns, side_by_side, min)


class _Derived(Dataset):
    """Rows that a function makes of another data set's; ``size`` gives their number, None: they are counted."""

    def __init__(self, source: Dataset, change: Change, size: Callable[[int], int] | None,
                 columns: Sequence[str] | None = None) -> None:  # fmt: skip
        super().__init__(source._columns if columns is None else columns)
        self._source, self._change, self._size = source, change, size

    def rows(self, epoch: Epoch) -> Iterator[Row]:
        return self._change(self._source.rows(epoch), epoch)

    def get_dataset_size(self) -> int:
        return super().get_dataset_size() if self._size is None else self._size(self._source.get_dataset_size())

    def get_batch_size(self) -> int:
        return self._source.get_batch_size()

    def get_repeat_count(self) -> int:
        return self._source.get_repeat_count()


class _Mapped(_Derived):
    """Rows with columns that functions compute."""

    def __init__(self, source: Dataset, operations: Sequence[Callable[..., Any]], inputs: Any, outputs: Any) -> None:
        self._places_in = source._places(inputs, "map")
        self._outputs = listed(inputs) if outputs is None else listed(outputs)
        self._operations = operations
        super().__init__(source, self._mapped, lambda size: size, _named(source, self._places_in, self._outputs))

    def _mapped(self, rows: Iterator[Row], epoch: Epoch) -> Iterator[Row]:
        for row in rows:
            values: Any = tuple(row[place] for place in self._places_in)
            for operation in self._operations:
                values = operation(*values)
                values = values if isinstance(values, tuple) else (values,)
            fits("map", values, self._outputs)
            yield exchanged(row, self._places_in, tuple(map(to_array, values)))


class _Batched(_Derived):
    """Rows in batches."""

    def __init__(
        self, source: Dataset, size: int, drops: bool, function: Callable[..., Any] | None, inputs: Any, outputs: Any
    ) -> None:
        self._places_in = source._places(source._columns if inputs is None else inputs, "batch")
        given = [source._columns[place] for place in self._places_in]
        self._outputs = given if outputs is None else listed(outputs)
        self._batch, self._drops, self._function = size, drops, function
        super().__init__(source, self._batched, self._count, _named(source, self._places_in, self._outputs))

    def get_batch_size(self) -> int:
        return self._batch

    def _count(self, size: int) -> int:
        return size // self._batch if self._drops else -(-size // self._batch)

    def _batched(self, rows: Iterator[Row], epoch: Epoch) -> Iterator[Row]:
        number = 0
        while chunk := list(islice(rows, self._batch)):
            if len(chunk) < self._batch and self._drops:
                return
            columns: tuple[Any, ...] = tuple(map(list, builtins.zip(*chunk, strict=True)))
            if self._function is not None:
                values = self._function(*(columns[p] for p in self._places_in), BatchInfo(number, epoch.number))
                values = values if isinstance(values, tuple) else (values,)
                fits("per_batch_map", values, self._outputs)
                columns = exchanged(columns, self._places_in, values)
            yield tuple(stacked(name, values) for name, values in builtins.zip(self._columns, columns, strict=True))
            number += 1


class _Repeated(_Derived):
    """Rows several times in an epoch, in another order each time where they are shuffled."""

    def __init__(self, source: Dataset, count: int) -> None:
        self._repeats = count
        super().__init__(source, self._repeated, lambda size: size * max(count, 1))

    def get_repeat_count(self) -> int:
        return self._repeats

    def _repeated(self, rows: Iterator[Row], epoch: Epoch) -> Iterator[Row]:
        done = 0
        while done != self._repeats:
            rows = self._source.rows(Epoch(epoch.number * max(self._repeats, 1) + done, epoch.random))
            first = next(rows, None)
            if first is None:
                return
            yield first
            yield from rows
            done += 1


class _Several(Dataset):
    """Rows that a function makes of those of several data sets; ``size`` makes their number of those of all."""

    def __init__(self, parts: Sequence[Dataset], columns: Sequence[str],
                 change: Callable[[Iterator[Any]], Iterator[Row]],
                 size: Callable[[Iterator[int]], int]) -> None:  # fmt: skip
        super().__init__(columns)
        self._parts, self._change, self._size = parts, change, size

    def rows(self, epoch: Epoch) -> Iterator[Row]:
        return self._change(part.rows(epoch) for part in self._parts)

    def get_dataset_size(self) -> int:
        return self._size(part.get_dataset_size() for part in self._parts)


def _named(source: Dataset, places: Sequence[int], outputs: Sequence[str]) -> list[str]:
    """Return the columns' names when those at ``places`` gave way to ``outputs``."""
    named = exchanged(source._columns, places, outputs)
    if len(set(named)) < len(named):
        raise ArgumentValueError(f"columns would be called {list(named)}", "give each a name of its own")
    return list(named)
