"""Functions of the rows of a data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.dataset.samplers import Epoch
from opbuild.mindspore.tensor import Tensor
from opbuild.platform.records import dataclass

Row = tuple[Array, ...]


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
        new = dict(zip(places, values, strict=True))
        return tuple(new.get(place, value) for place, value in enumerate(row))
    kept = [(place, value) for place, value in enumerate(row) if place not in places]
    before = [value for place, value in kept if place < min(places)]
    return (*before, *values, *(value for place, value in kept if place > min(places)))


def fits(what: str, values: Sequence[Any], outputs: Sequence[str]) -> None:
    """Refuse values that are not one for each column.

    Raises:
        ArgumentValueError: If they are not.
    """
    if len(values) != len(outputs):
        raise ArgumentValueError(
            f"{what} gave {len(values)} values for the columns {list(outputs)}", "say output_columns"
        )


def stacked(name: str, values: Iterable[Any]) -> Array:
    """Return the rows of a column as one array.

    Raises:
        ArgumentValueError: If their shapes differ.
    """
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
