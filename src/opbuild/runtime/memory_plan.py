"""Memory planning: where each temporary buffer of a program lies in the arena.

The algorithm is "greedy by size" of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference"
(2020, arXiv:2001.03288): buffers are placed from the largest to the smallest, each into the smallest gap that is left
between the buffers that live at the same time.

Buffers whose padding must stay zero (``Buffer.zeroed``) are placed first, one slot for each set of equal geometry that
lives at the same time. A slot is never shared with other buffers and never overlapped partly, because the arena is
zeroed once, when it is made, and a kernel writes everything but the padding of its own geometry.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from opbuild.dtypes import itemsize
from opbuild.graph.types import Array
from opbuild.platform.records import NamedTuple
from opbuild.program import Call, KernelCall, Program, View
from opbuild.runtime.record import ALIGNMENT
from opbuild.target.level import CPU

SPARE = 0.05
"""Part of the bytes in use at once that buffers which lie as those of another size may waste more than those do."""


class MemoryPlan(NamedTuple):
    """The places of temporary buffers.

    Attributes:
        offsets: For each buffer its first byte in the arena, a multiple of ``ALIGNMENT``; 0 for one that is not there.
        size: Bytes of the arena.
        zeroed: Bytes at its beginning that hold the buffers whose padding must be zero.
        others: Both of the arenas of devices other than the CPU; ``offsets`` are of all.
    """

    offsets: Array
    size: int
    zeroed: int = 0
    others: Mapping[str, tuple[int, int]] = MappingProxyType({})

    def with_device(self, name: str, plan: MemoryPlan) -> MemoryPlan:
        """Return this plan with that of the buffers on another device."""
        return self._replace(
            offsets=self.offsets + plan.offsets, others={**self.others, name: (plan.size, plan.zeroed)}
        )


class Life(NamedTuple):
    """A temporary buffer, and the first and last call that touch it."""

    buffer: int
    first: int
    last: int


class Lives:
    """The lives of a program's temporary buffers, which are the same at each size.

    Args:
        temporaries: Indices of the temporary buffers.
        touched: The buffers that each call reads or writes.
        zeroed: Those of them whose padding must stay zero.

    Attributes:
        zeroed: The lives of those whose padding must stay zero, in order of their first calls.
        others: Those of the others.
        meeting: For each of these the numbers of the others that share a call with it.
    """

    def __init__(self, temporaries: Iterable[int], touched: Iterable[Iterable[int]], zeroed: Collection[int]) -> None:
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for index, buffers in enumerate(touched):
            for buffer in buffers:
                first.setdefault(buffer, index)
                last[buffer] = index
        lives = [Life(buffer, first[buffer], last[buffer]) for buffer in temporaries if buffer in first]
        padded = [life for life in lives if life.buffer in zeroed]
        self.zeroed = sorted(padded, key=lambda life: (life.first, life.buffer))
        self.others = sorted((life for life in lives if life.buffer not in zeroed), key=lambda life: life[1::-1])
        self.meeting = _overlapping_lives(self.others)

    def plan(self, nbytes: Sequence[int], geometries: Mapping[int, Hashable]) -> MemoryPlan:
        """Place all buffers in one arena.

        Args:
            nbytes: The size of each buffer of the program.
            geometries: The geometry of each buffer whose padding must stay zero.
        """
        offsets = [0] * len(nbytes)
        zeroed = self._place_zeroed(nbytes, geometries, offsets)
        size = self._place_by_size([_rounded(nbytes[life.buffer]) for life in self.others], zeroed, offsets)
        return MemoryPlan(np.array(offsets, np.int64), size, zeroed)

    def _place_zeroed(self, nbytes: Sequence[int], geometries: Mapping[int, Hashable], offsets: list[int]) -> int:
        """Give each zeroed buffer a whole slot of its own geometry; return the bytes that the slots take."""
        slots: dict[Hashable, list[tuple[int, int]]] = {}  # geometry -> (offset, last call) of each slot
        end = 0
        for life in self.zeroed:
            same = slots.setdefault(geometries[life.buffer], [])
            for position, (offset, last) in enumerate(same):
                if last < life.first:
                    same[position] = (offset, life.last)
                    offsets[life.buffer] = offset
                    break
            else:
                offsets[life.buffer] = end
                same.append((end, life.last))
                end += _rounded(nbytes[life.buffer])
        return end

    def _place_by_size(self, nbytes: Sequence[int], start: int, offsets: list[int]) -> int:
        """Place buffers from the largest on, each in the smallest gap that holds it; return the arena's size."""
        placed: list[tuple[int, int] | None] = [None] * len(nbytes)
        end = start
        for number in sorted(range(len(nbytes)), key=lambda number: -nbytes[number]):
            taken = sorted(filter(None, [placed[other] for other in self.meeting[number]]))
            offset = _best_gap(nbytes[number], taken, start)
            placed[number] = offset, offset + nbytes[number]
            offsets[self.others[number].buffer] = offset
            end = max(end, offset + nbytes[number])
        return end


class Stack:
    """Which of the buffers of a plan lies on which other one: the same plan for buffers of other sizes.

    Args:
        lives: The lives of the buffers.
        plan: Where they lie in one size.
        nbytes: The size of each buffer of the program there.

    Attributes:
        alike: Buffers with others in whose places they lie, which must be of the same geometry.
    """

    def __init__(self, lives: Lives, plan: MemoryPlan, nbytes: Sequence[int]) -> None:
        offsets, others = plan.offsets.tolist(), [life.buffer for life in lives.others]
        self._count = len(nbytes)
        slots = {offsets[life.buffer]: life.buffer for life in reversed(lives.zeroed)}
        number = {offset: index for index, offset in enumerate(sorted(slots))}
        self._slots = np.array([slots[offset] for offset in number], np.int64)
        self._padded = np.array([life.buffer for life in lives.zeroed], np.int64)
        self._slot = np.array([number[offsets[life.buffer]] for life in lives.zeroed], np.int64)
        self.alike = [*zip(self._padded.tolist(), self._slots[self._slot].tolist(), strict=True)]
        self._levels = self._stacked(lives, offsets, nbytes)
        pairs = [(one, others[each]) for one, met in zip(others, lives.meeting, strict=True) for each in met]
        self._one, self._other = np.array([each for each in pairs if each[0] < each[1]], np.int64).reshape(-1, 2).T
        placed = np.array([*lives.zeroed, *lives.others], np.int64).reshape(-1, 3)
        self._placed, self._first, self._end = placed[:, 0], placed[:, 1], placed[:, 2] + 1
        self._calls = int(self._end.max(initial=0)) + 1
        least = self._least_size(_all_rounded(np.array(nbytes, np.int64)))
        self._waste = SPARE + plan.size / least if least else 1.0

    def _least_size(self, rounded: Array) -> int:
        """Return the bytes that are in use at once, which no plan has less than."""
        more = np.bincount(self._first, rounded[self._placed], self._calls)
        return int((more - np.bincount(self._end, rounded[self._placed], self._calls)).cumsum().max(initial=0))

    def _stacked(self, lives: Lives, offsets: Sequence[int], nbytes: Sequence[int]) -> list[tuple[Array, Array]]:
        """Return buffers with the one below each, those first that lie at the bottom: on the zeroed memory."""
        below: dict[int, int] = {}
        level: dict[int, int] = {self._count: 0}
        others = lives.others
        for number in sorted(range(len(others)), key=lambda number: offsets[others[number].buffer]):
            buffer = others[number].buffer
            met = (others[other].buffer for other in lives.meeting[number])
            under = (each for each in met if each in level and nbytes[each])
            ends = (each for each in under if _end(each, offsets, nbytes) == offsets[buffer])
            below[buffer] = next(ends, self._count)
            level[buffer] = level[below[buffer]] + 1
        levels = [[each for each in below if level[each] == depth] for depth in range(1, max(level.values()) + 1)]
        return [(np.array(own, np.int64), np.array([below[each] for each in own], np.int64)) for own in levels]

    def plan(self, nbytes: Array) -> MemoryPlan | None:
        """Return the memory plan of buffers of other sizes.

        None if two that live at once would overlap, or the arena would be larger than it has to be.
        """
        rounded = _all_rounded(nbytes)
        offsets = np.zeros(self._count + 1, np.int64)  # the last is what lies on nothing else
        ends = rounded[self._slots].cumsum()
        zeroed = offsets[self._count] = int(ends[-1]) if len(ends) else 0
        offsets[self._padded] = (ends - rounded[self._slots])[self._slot]
        for own, below in self._levels:
            offsets[own] = offsets[below] + rounded[below]
        end = offsets + rounded
        one, other = self._one, self._other
        if ((end[one] > offsets[other]) & (end[other] > offsets[one])).any():
            return None
        size = int(end[self._placed].max(initial=zeroed))
        return MemoryPlan(offsets[:-1], size, zeroed) if size <= self._waste * self._least_size(rounded) else None


def _all_rounded(nbytes: Array) -> Array:
    return np.append(-(-nbytes // ALIGNMENT) * ALIGNMENT, 0)


def _end(buffer: int, offsets: Sequence[int], nbytes: Sequence[int]) -> int:
    return offsets[buffer] + _rounded(nbytes[buffer])


def _overlapping_lives(lives: Sequence[Life]) -> list[list[int]]:
    """Return for each life, in order of their first calls, the numbers of the others that share a call with it."""
    meeting: list[list[int]] = [[] for _ in lives]
    living: list[int] = []
    for number, life in enumerate(lives):
        living = [other for other in living if lives[other].last >= life.first]
        meeting[number] += living
        for other in living:
            meeting[other].append(number)
        living.append(number)
    return meeting


def plan(program: Program) -> MemoryPlan:
    """Place the temporary buffers of ``program`` in one arena a device.

    A buffer lives from the first call that touches it to the last one, both included. Buffers that no call touches
    lie at offset 0 and cost nothing.
    """
    plan = _plan_of(program, CPU)
    for name in dict.fromkeys(each.device for each in program.buffers if each.device != CPU):
        plan = plan.with_device(name, _plan_of(program, name))
    return plan


def _plan_of(program: Program, device: str) -> MemoryPlan:
    """Return the plan of the buffers on one device."""
    temporary = ((i, each) for i, each in enumerate(program.buffers) if each.kind == "temporary")
    buffers = [(i, each) for i, each in temporary if each.device == device]
    geometries = {i: (each.zeroed, each.dtype, each.size) for i, each in buffers if each.zeroed is not None}
    touched = ([view.buffer for view in views_of(call)] for call in program.calls)
    nbytes = [buffer.size * itemsize(buffer.dtype) for buffer in program.buffers]
    return Lives([index for index, _ in buffers], touched, geometries).plan(nbytes, geometries)


def views_of(call: Call) -> Iterable[View]:
    """Yield the views that a call reads or writes."""
    views = call.views if isinstance(call, KernelCall) else (*call.inputs, *call.outputs)
    return (view for view in views if view is not None)


def _best_gap(nbytes: int, taken: Sequence[tuple[int, int]], start: int) -> int:
    """Return the offset of the smallest gap between taken spans, from begin to end, or else behind all."""
    best: tuple[int, int] | None = None  # (size of the gap, offset)
    free_from = start
    for offset, end in taken:
        gap = offset - free_from
        if gap >= nbytes and (best is None or gap < best[0]):
            best = (gap, free_from)
        if end > free_from:  # noqa: PLR1730 - a call of ``max`` for each gap takes as long as the rest
            free_from = end
    return best[1] if best else free_from


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
