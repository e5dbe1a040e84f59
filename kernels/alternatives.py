"""The variants that sizes in a range can pick, told from what lowering asked families at some of them.

A family chooses by extents (``choose``), so what it would answer between the extents that it was asked with, it can be
asked directly. Lowering then describes these answers instead of the one for the size at hand, one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product, repeat
from typing import Any

from opbuild.families.blocked import BLOCK
from opbuild.families.catalogue import find
from opbuild.families.copy.lowering import copy
from opbuild.families.elementwise.lowering import BLOCKED_TYPES
from opbuild.families.family import Family, for_machine
from opbuild.families.from_blocked.lowering import from_blocked
from opbuild.families.to_blocked.lowering import to_blocked
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Chooser
from opbuild.lowering.operands import Made
from opbuild.program import View
from opbuild.target.machine import Machine

Arguments = tuple[Any, ...]
Question = tuple[tuple[str, ...], Family, int, int]
"""The nodes that are lowered, a family, how often they asked it before, and with how many numbers."""

MOST = 4096
"""Combinations of extents that a family is asked about, at most, for one question."""


class Alternatives(Chooser):
    """Chooses what families would at sizes in a range; remembers which kernels were asked for.

    Attributes:
        wanted: Descriptors that were asked for.
    """

    def __init__(self) -> None:
        self.wanted: dict[OpDesc, None] = {}
        self._asked: dict[Question, dict[tuple[int, ...], None]] = {}
        self._turn: int | None = None
        self._times: Counter[Any] = Counter()
        self._turns = 0

    def turns(self) -> Iterator[int]:
        """Yield once for each lowering of a graph that describes answers at other sizes than its own."""
        self._turn = self._turns = 0
        while self._turn <= self._turns:
            self._times.clear()
            yield self._turn
            self._turn += 1
        self._turn = None

    def begin(self) -> None:
        """Begin to lower another size: what is asked is remembered, and answered as it is elsewhere."""
        self._turn = None
        self._times.clear()

    def serve(self, desc: OpDesc, views: tuple[View, ...]) -> Made:
        """Return the very call; in a turn, whose variants this size need not allow, that of the one without limits."""
        self.wanted[desc] = None
        if self._turn is None:
            return desc, views
        found = find(desc.family).without_limits(desc)
        if find(desc.family).any_rank:
            rank = len(found.outputs[0].dims)
            views = tuple(View(v.buffer, v.offset, (*v.dims, *((1, 0),) * (rank - len(v.dims)))) for v in views)
        return found, views

    def choose(self, site: tuple[str, ...], family: Family, arguments: Arguments) -> Any:
        """Return the variant for this size, or, in a turn, one that another size would get."""
        time = self._times[site, family]
        self._times[site, family] += 1
        numbers = tuple(_numbers(arguments))
        asked = self._asked.setdefault((site, family, time, len(numbers)), {})
        asked[numbers] = None
        own = family.choose(*arguments)
        if self._turn is None or own is None:  # another family serves this size: its answers count
            return own
        ranges = tuple((min(column), max(column)) for column in zip(*asked, strict=True))
        answers = _answers(family, _with_numbers(arguments, repeat(0)), ranges)
        self._turns = max(self._turns, len(answers) - 1)
        return answers[self._turn] if self._turn < len(answers) else own


@lru_cache(maxsize=4096)
def _answers(family: Family, arguments: Arguments, ranges: tuple[tuple[int, int], ...]) -> Sequence[Any]:
    """Return all that a family answers to arguments whose numbers lie in ranges; what they are here does not count."""
    open_ = sum(low != high for low, high in ranges)
    each = int(MOST ** (1 / open_)) if open_ else 1
    answers = {}
    for numbers in product(*(_values(low, high, each) for low, high in ranges)):
        answer = family.choose(*_with_numbers(arguments, iter(numbers)))
        answers[repr(answer)] = answer
    return [answer for answer in answers.values() if answer is not None]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _numbers(arguments: Arguments) -> Iterator[int]:
    for value in arguments:
        if isinstance(value, tuple):
            yield from _numbers(value)
        elif _is_number(value):
            yield value


def _with_numbers(arguments: Arguments, numbers: Iterator[int]) -> Arguments:
    return tuple(
        _with_numbers(value, numbers) if isinstance(value, tuple) else next(numbers) if _is_number(value) else value
        for value in arguments
    )


def _values(low: int, high: int, count: int) -> Sequence[int]:
    """Return all numbers of a range, or ``count`` of them: the least one by one, others evenly up to the greatest."""
    if high - low < count:
        return range(low, high + 1)
    dense = count // 2
    step = (high - low - dense) / max(1, count - dense - 1)
    return [*range(low, low + dense), *(round(high - step * number) for number in range(count - dense))]


def _many_dims(rank: int) -> View:
    """Return a view of which no two dimensions are one."""
    return View(0, 0, tuple((2, 3**axis) for axis in range(rank)))


def conversions(machine: Machine) -> tuple[OpDesc, ...]:
    """Return the copies and changes of layout without limits; with them any node can be left to the host."""
    element = View(0, 0, ((1, 1),))
    image, odd = View(0, 0, ((1, 1), (1, 1), (BLOCK, 1))), View(0, 0, ((1, 1), (1, 1), (1, 1)))
    blocked = View(0, 0, ((BLOCK, 1), (1, BLOCK), (1, BLOCK), (1, BLOCK)))
    choose = for_machine(machine)
    moved = [(element, element), *((each, View(0, 0, each.dims[::-1])) for each in map(_many_dims, (7, 8)))]
    calls = [copy(views, dtype, choose) for views in moved for dtype in ("uint8", "uint16", "uint32", "uint64")]
    for dtype in BLOCKED_TYPES:
        calls += [to_blocked((plain, blocked), dtype, choose) for plain in (image, odd)]
        calls.append(from_blocked((blocked, image), dtype, choose))
    return tuple(find(desc.family).without_limits(desc) for desc, _ in calls)
