"""Memory planning: where each temporary buffer of a program lies in the arena.

The algorithm is "greedy by size" of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference"
(2020, arXiv:2001.03288): buffers are placed from the largest to the smallest, each into the smallest gap that is left
between the buffers that live at the same time.

Buffers whose padding must stay zero (``Buffer.zeroed``) are placed first, one slot for each set of equal geometry that
lives at the same time. A slot is never shared with other buffers and never overlapped partly, because the arena is
zeroed once, when it is made, and a kernel writes everything but the padding of its own geometry.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from opbuild.dtypes import itemsize
from opbuild.program import Buffer, Call, KernelCall, Program, View
from opbuild.runtime.record import ALIGNMENT


@dataclass(frozen=True)
class MemoryPlan:
    """Where temporary buffers lie.

    Attributes:
        offsets: For each temporary buffer its first byte in the arena, a multiple of ``ALIGNMENT``.
        size: Bytes of the arena.
        zeroed: Bytes at its beginning that hold the buffers whose padding must be zero.
    """

    offsets: Mapping[int, int]
    size: int
    zeroed: int = 0


@dataclass(frozen=True)
class _Life:
    """A buffer's size in bytes and the first and last call that touch it."""

    buffer: int
    nbytes: int
    first: int
    last: int

    def meets(self, other: _Life) -> bool:
        return self.first <= other.last and other.first <= self.last


def plan(program: Program) -> MemoryPlan:
    """Place the temporary buffers of ``program`` in one arena.

    A buffer lives from the first call that touches it to the last one, both included. Buffers that no call touches
    lie at offset 0 and cost nothing.
    """
    lives = _lives(program)
    offsets = {index: 0 for index, buffer in enumerate(program.buffers) if buffer.kind == "temporary"}
    zeroed = _place_zeroed(program.buffers, lives, offsets)
    size = _place_by_size([life for life in lives if program.buffers[life.buffer].zeroed is None], zeroed, offsets)
    return MemoryPlan(offsets, size, zeroed)


def views_of(call: Call) -> Iterable[View]:
    """Yield the views that a call reads or writes."""
    views = call.views if isinstance(call, KernelCall) else (*call.inputs, *call.outputs)
    return (view for view in views if view is not None)


def _lives(program: Program) -> list[_Life]:
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, call in enumerate(program.calls):
        for view in views_of(call):
            first.setdefault(view.buffer, index)
            last[view.buffer] = index
    return [
        _Life(index, _rounded(buffer.size * itemsize(buffer.dtype)), first[index], last[index])
        for index, buffer in enumerate(program.buffers)
        if buffer.kind == "temporary" and index in first
    ]


def _place_zeroed(buffers: tuple[Buffer, ...], lives: list[_Life], offsets: dict[int, int]) -> int:
    """Give each zeroed buffer a whole slot of its own geometry; return the bytes that the slots take."""
    slots: dict[Hashable, list[tuple[int, int]]] = {}  # geometry -> (offset, last call) of each slot
    end = 0
    for life in sorted(lives, key=lambda life: (life.first, life.buffer)):
        buffer = buffers[life.buffer]
        if buffer.zeroed is None:
            continue
        same = slots.setdefault((buffer.zeroed, buffer.dtype, buffer.size), [])
        for position, (offset, last) in enumerate(same):
            if last < life.first:
                same[position] = (offset, life.last)
                offsets[life.buffer] = offset
                break
        else:
            offsets[life.buffer] = end
            same.append((end, life.last))
            end += life.nbytes
    return end


def _place_by_size(lives: list[_Life], start: int, offsets: dict[int, int]) -> int:
    """Place buffers from the largest on, each in the smallest gap that holds it; return the arena's size."""
    placed: list[_Life] = []  # in order of offset
    end = start
    for life in sorted(lives, key=lambda life: (-life.nbytes, life.first, life.buffer)):
        offset = _best_gap(life, placed, start, offsets)
        offsets[life.buffer] = offset
        placed.append(life)
        placed.sort(key=lambda other: offsets[other.buffer])
        end = max(end, offset + life.nbytes)
    return end


def _best_gap(life: _Life, placed: list[_Life], start: int, offsets: Mapping[int, int]) -> int:
    best: tuple[int, int] | None = None  # (size of the gap, offset)
    free_from = start
    for other in placed:
        if not life.meets(other):
            continue
        gap = offsets[other.buffer] - free_from
        if gap >= life.nbytes and (best is None or gap < best[0]):
            best = (gap, free_from)
        free_from = max(free_from, offsets[other.buffer] + other.nbytes)
    return best[1] if best else free_from


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
