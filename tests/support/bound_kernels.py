"""The extents and strides that kernels are bound with, checked against their entries.

This is where a network's arguments are handed to compiled code, whatever decided them: a kernel checks nothing.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from opbuild.kernel.opdesc import OpDesc
from opbuild.runtime.arena import Arena
from opbuild.runtime.devices.cpu.library import DIMENSION
from opbuild.runtime.executor import Executor

Dims = tuple[tuple[int, int], ...]


class Bound(NamedTuple):
    """One call of a kernel as it is bound.

    Attributes:
        symbol: The kernel's.
        operands: Extent and stride of each dimension of each operand, innermost first.
    """

    symbol: str
    operands: tuple[Dims, ...]


@contextmanager
def watched_bindings() -> Iterator[set[Bound]]:
    """Note each call whose arguments are filled meanwhile."""
    found: set[Bound] = set()
    whole = Arena.fill

    def fill(self: Arena, owner: Executor, memory: Any, others: Any) -> None:
        whole(self, owner, memory, others)
        steps, start = owner.record.steps, 0
        for kind, end in zip(steps.called.tolist(), steps.ends.tolist(), strict=True):
            operands = tuple(_dims(header) for header in self.on_cpu.headers[start:end])
            found.add(Bound(steps.kinds[kind].symbol, operands))
            start = end

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Arena, "fill", fill)
        yield found


class Checked(NamedTuple):
    """What became of bound calls.

    Attributes:
        known: Of how many the store has the kernel.
        wrong: What is wrong with any of them.
    """

    known: int
    wrong: list[str]


def checked(bound: Iterable[Bound], store: Path) -> Checked:
    """Compare bound calls with the descriptors of the kernels that a store has."""
    made, known, wrong = _descriptors(store), 0, []
    for symbol, operands in bound:
        descs = made.get(symbol, [])
        known += bool(descs)
        said = [desc.problem(operands) for desc in descs]
        if said and all(said):
            wrong.append(f"{symbol}: {said[0]}")
    return Checked(known, wrong)


def _descriptors(store: Path) -> dict[str, list[OpDesc]]:
    """Return the descriptors of a store's kernels, by symbol."""
    found: dict[str, list[OpDesc]] = {}
    for path in store.glob("rank_*/kernel_meta/*.info"):
        symbol = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["kernelName"]
        key = json.loads(path.read_text(encoding="utf-8"))["key"]
        found.setdefault(symbol, []).append(OpDesc.from_components(key["components"]))
    return found


def _dims(header: Any) -> Dims:
    rank = int(header["dimensions"])
    if not rank:
        return ()
    text = ctypes.string_at(int(header["dim"]), rank * DIMENSION.itemsize)
    dims = np.frombuffer(text, DIMENSION)
    return tuple(zip(dims["extent"].tolist(), dims["stride"].tolist(), strict=True))
