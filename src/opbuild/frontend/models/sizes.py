"""Sizes: the ranges in which the extents of a network's inputs may lie, and some sizes that stand for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from random import Random
from typing import Any, TypeVar

from opbuild.errors import ShapeError
from opbuild.kernel.opdesc import FREE
from opbuild.platform.records import dataclass

T = TypeVar("T")
Shapes = tuple[tuple[int, ...], ...]
Extents = tuple[int, int]
"""Least and greatest extent; ``FREE`` for no upper limit."""

USUAL = (32, 48, 64, 96, 112, 128, 160, 192, 224, 256, 288, 299, 320, 384, 416, 448, 512, 640, 768, 1024)
"""Extents that inputs often have."""

UNBOUNDED_IMAGES, UNBOUNDED = 8, 512
"""Where a range has no upper limit: the greatest number of images, and the greatest other extent, that are tried."""

ALL = 48
"""An open extent of so many values is looked at whole."""


@dataclass(frozen=True)
class Sizes:
    """The ranges of all inputs.

    Attributes:
        names: The inputs' names.
        ranges: For each input and dimension the least and greatest extent.
    """

    names: tuple[str, ...]
    ranges: tuple[tuple[Extents, ...], ...]

    def check(self, shapes: Shapes) -> None:
        """Refuse shapes outside the ranges.

        Raises:
            ShapeError: If one is; the message names the input and its range.
        """
        for name, ranges, shape in zip(self.names, self.ranges, shapes, strict=True):
            pairs = zip(ranges, shape, strict=False)
            is_inside = all(low <= each and (high == FREE or each <= high) for (low, high), each in pairs)
            if len(shape) != len(ranges) or not is_inside:
                problem = (
                    f"input {name!r} has shape {list(shape)}, which is outside [{', '.join(map(_range_text, ranges))}]"
                )
                raise ShapeError(problem, "give a shape inside the range, or build the model again with a wider one")

    def samples(self) -> tuple[Shapes, ...]:
        """Return sizes that stand for all: the least ones, those that are usual, and some at random, each once."""
        return tuple(dict.fromkeys(self._shapes_of(choice) for choice in self._choices()))

    def drawn(self) -> Iterator[Shapes]:
        """Yield sizes at random without end, the same ones each time; at every other one equal ranges agree."""
        draw, open_ = Random(0), self._open()  # noqa: S311 - nothing is kept secret
        for together in cycle((True, False)):
            share, power = draw.random(), draw.choice((1, 3))
            shares = ((place, share if together else draw.random()) for place in open_)
            yield self._shapes_of(
                {
                    place: open_[place][0] + int(each**power * (open_[place][1] - open_[place][0] + 1))
                    for place, each in shares
                }
            )

    def to_json(self) -> list[Any]:
        """Return the ranges as JSON values."""
        return [[list(each) for each in ranges] for ranges in self.ranges]

    def text(self) -> str:
        """Return the ranges as users write them: ``x:1,3,1~640,1~640``, inputs separated by ``;``."""
        pairs = zip(self.names, self.ranges, strict=True)
        return ";".join(f"{name}:{','.join(map(_range_text, ranges))}" for name, ranges in pairs)

    def _choices(self) -> Iterator[Mapping[tuple[int, int], int]]:
        """Yield a value for each open dimension, by input and axis."""
        open_ = self._open()
        if not open_:
            yield {}
            return
        values = {place: _values(low, high) for place, (low, high) in open_.items()}
        yield {place: each[len(each) // 2] for place, each in values.items()}
        yield {place: each[0] for place, each in values.items()}
        yield {place: each[-1] for place, each in values.items()}
        # Extents that must agree have equal ranges: at every other size they are equal.
        longest = max(map(len, values.values()))
        together = [
            {place: each[share * len(each) // longest] for place, each in values.items()} for share in range(longest)
        ]
        apart = [
            {place: each[(7 * number + 3 * index) % len(each)] for index, (place, each) in enumerate(values.items())}
            for number in range(longest)
        ]
        yield from _scattered([*together, *(apart if len(open_) > 1 else ())])

    def _open(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Return the least and the greatest value of each open dimension, by input and axis."""
        found = {}
        for i, ranges in enumerate(self.ranges):
            for axis, (low, high) in enumerate(ranges):
                most = UNBOUNDED_IMAGES if axis == 0 and len(ranges) == 4 else UNBOUNDED
                if low != high:
                    found[i, axis] = low, max(low, most) if high == FREE else high
        return found

    def _shapes_of(self, choice: Mapping[tuple[int, int], int]) -> Shapes:
        return tuple(
            tuple(choice.get((i, axis), low) for axis, (low, _) in enumerate(ranges))
            for i, ranges in enumerate(self.ranges)
        )


def make_sizes(names: Sequence[str], ranges: Sequence[Sequence[int | tuple[int, int]]]) -> Sizes:
    """Return the ranges of inputs.

    Args:
        names: The inputs' names.
        ranges: For each input its dimensions: an extent; ``FREE`` for any of at least 1; or least and greatest, of
            which the latter may be ``FREE``.

    Raises:
        ShapeError: If a range is empty or negative.
    """
    return Sizes(
        tuple(names), tuple(tuple(_extents(n, d) for d in dims) for n, dims in zip(names, ranges, strict=True))
    )


def _scattered(items: Sequence[T]) -> list[T]:
    """Return the items in an order in which neighbours lie far apart."""
    golden = (5**0.5 - 1) / 2
    return [items[index] for index in sorted(range(len(items)), key=lambda index: index * golden % 1)]


def _extents(name: str, given: Any) -> Extents:
    low, high = (1, FREE) if given == FREE else (given, given) if isinstance(given, int) else given
    if low < 0 or (high != FREE and high < low):
        raise ShapeError(
            f"input {name!r} has the range {low}~{high}",
            f"give the least dimension first: ({min(low, high)}, {max(low, high)})",
            command="give the least dimension, '~' and the greatest",
        )
    return int(low), int(high)


def _range_text(extents: Extents) -> str:
    low, high = extents
    if low == high:
        return str(low)
    return f"{low}~{high}" if high != FREE else "-1" if low == 1 else f"{low}~-1"


def _values(low: int, high: int) -> list[int]:
    if high - low < ALL:
        return list(range(low, high + 1))
    near = range(low, low + 5)
    small = (v for k in range(1, 6) for v in (2**k - 1, 2**k, 2**k + 1))
    return sorted(v for v in {*near, *small, *USUAL, high} if low <= v <= high)
