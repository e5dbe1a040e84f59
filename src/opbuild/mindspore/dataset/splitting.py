"""Data sets of some of the rows of another one, which share none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.dataset import config
from opbuild.mindspore.dataset.rows import Row
from opbuild.mindspore.dataset.samplers import Epoch, epoch_of

Change = Callable[[Iterator[Row], Epoch], Iterator[Row]]
"""Makes an epoch's rows of a part; of the rows of the whole in that epoch, which it is given, it takes none."""


def parts(
    rows_of: Callable[[Epoch], Iterator[Row]], whole: int, sizes: Sequence[int] | Sequence[float], randomize: bool
) -> list[tuple[Change, int]]:
    """Return the makers of the rows of each part, and how many rows each has; see ``Dataset.split``.

    Parts are made of the rows of one epoch, whose order does not change: no row wanders from one to another.

    Args:
        rows_of: Gives the rows of the whole in an epoch.
        whole: Their number.
        sizes: Numbers or shares.
        randomize: Whether rows are drawn.

    Raises:
        ArgumentValueError: If the sizes are not those of the whole.
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
    return [(change(order[end - count : end]), count) for count, end in zip(counts, ends, strict=True)]


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
