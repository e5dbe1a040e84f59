"""Calls for each image of a batch: one after the other, or one that is repeated where their number is open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opbuild.graph.extents import ClosedError, SymbolicExtent, example_value
from opbuild.program import Repeated


class Repetitions:
    """Which of the calls of a lowering are repeated.

    Args:
        calls: The calls, which grow.

    Attributes:
        is_elsewhere: Whether what is emitted now is run at other sizes than that at hand.
    """

    def __init__(self, calls: Sequence[object]) -> None:
        self._calls = calls
        self._of: dict[int, Repeated] = {}
        self.is_elsewhere = False

    def images(self, count: int) -> Iterator[int]:
        """Yield the number of each image; one that stands for all if ``count`` is open.

        The calls that are emitted until the next one is asked for are then repeated. What they read of the number is
        where an image begins.

        Raises:
            ClosedError: If repetitions are nested.
        """
        if not isinstance(count, SymbolicExtent):
            yield from range(count)
            return
        first = len(self._calls)
        yield count.owner.index()
        own = [place for place in range(first, len(self._calls)) if place not in self._of]
        if own and own != list(range(own[0], len(self._calls))):  # the first of them brought values to another layout
            raise ClosedError("a repetition lies in another one")
        repeated = Repeated(count)
        self._of.update(dict.fromkeys(own, repeated))

    @contextmanager
    def where(self, flag: int) -> Iterator[None]:
        """Let the calls that are emitted meanwhile be run only where a flag, which may be open, is 1.

        Nothing that they write may be read elsewhere, but what other calls write where it is 0.
        """
        first, before = len(self._calls), self.is_elsewhere
        self.is_elsewhere = before or not example_value(flag)
        yield
        self.is_elsewhere = before
        if isinstance(flag, SymbolicExtent):
            made: dict[Repeated | None, Repeated] = {}
            for place in range(first, len(self._calls)):
                own = self._of.get(place)
                if own not in made:
                    made[own] = Repeated(flag if own is None else own.count * flag)
                self._of[place] = made[own]

    def of(self, place: int) -> Repeated | None:
        """Return the repetition that the call at a place is a part of, if it is repeated."""
        return self._of.get(place)
