"""ShapePattern: shapes of which some extents are open, compared with many others without a look at each dimension."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from opbuild.kernel.free import FREE


class ShapePattern:
    """See the module.

    Args:
        declared: The shapes, ``FREE`` where an extent is open.
    """

    def __init__(self, declared: Sequence[Sequence[int]]) -> None:
        self._ranks = [*map(len, declared)]
        fixed = [(place, extent) for place, extent in enumerate(chain(*declared)) if extent != FREE]
        self._places, self._extents = [place for place, _ in fixed], [extent for _, extent in fixed]

    def fits(self, shapes: Sequence[Sequence[int]]) -> bool:
        """Whether other shapes have the same numbers of dimensions, and the same extents where these are not open."""
        if [*map(len, shapes)] != self._ranks:
            return False
        extents = [*chain.from_iterable(shapes)]
        return [extents[place] for place in self._places] == self._extents
