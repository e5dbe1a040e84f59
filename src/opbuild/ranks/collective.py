"""Operations of ranks together: the description that must be equal on all of them, and the arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Protocol

import numpy as np

from opbuild.graph.types import Array
from opbuild.platform.records import dataclass

SAME_EVERYWHERE = "every rank must do the same operations with equal shapes, types and reductions"
"""The advice where ranks differ."""

REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}
"""MindSpore's reductions."""


@dataclass(frozen=True)
class Collective:
    """One operation of all ranks.

    Attributes:
        kind: ``AllReduce``, ``AllGather``, ``ReduceScatter``, ``Broadcast`` or ``Barrier``.
        dtype: Element type of each rank's array.
        shape: Its shape.
        reduction: A key of ``REDUCTIONS``; empty where nothing is reduced.
        root: The rank that ``Broadcast`` takes from.
    """

    kind: str
    dtype: str = "uint8"
    shape: tuple[int, ...] = (0,)
    reduction: str = ""
    root: int = 0

    def __str__(self) -> str:
        if self.kind == "Barrier":
            return "the meeting of all ranks"
        option = self.reduction or (f"root_rank={self.root}" if self.kind == "Broadcast" else "")
        return f"{self.kind}({option}) of {self.dtype}[{','.join(map(str, self.shape))}]"


class Transport(Protocol):
    """The transport between the ranks of a job.

    Attributes:
        rank: This rank.
        size: The number of ranks.
        local_rank: This rank among those of its host.
        local_size: Their number.
        serves_threads: Whether an operation may run in another thread than the one that connected.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    serves_threads: bool

    def run(self, collective: Collective, array: Array) -> Array:
        """Take part in an operation with a dense array; return this rank's result, a fresh array.

        Raises:
            RankError: If another rank does something else, fails, or hangs.
        """
        ...

    def close(self) -> None:
        """Let go of the other ranks."""
        ...


def combine(collective: Collective, arrays: Sequence[Array], rank: int) -> Array:
    """Return a rank's result of a collective on all ranks' arrays, which are in the order of ranks.

    Sums and products of float16 are taken in float32 and rounded once.
    """
    if collective.kind == "AllGather":
        return np.concatenate(arrays)
    if collective.kind == "ReduceScatter":
        rows = arrays[0].shape[0] // len(arrays)
        arrays = [array[rank * rows : (rank + 1) * rows] for array in arrays]
    function = REDUCTIONS[collective.reduction]
    widened = widened_dtype(collective)
    if widened is not None:
        arrays = [array.astype(widened) for array in arrays]
    with np.errstate(all="ignore"):
        return np.asarray(reduce(function, arrays)).astype(collective.dtype, copy=False)


def widened_dtype(collective: Collective) -> np.dtype[Any] | None:
    """Return the type in which a reduction is computed, if it is not that of the arrays."""
    wide = collective.dtype == "float16" and collective.reduction in ("sum", "prod")
    return np.dtype(np.float32) if wide else None
