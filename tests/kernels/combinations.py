"""Combinations of parameters: some in the suite, all in a campaign."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from support.fuzzing import CAMPAIGN


def crossed(part: int, *axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return a ``part``-th of the combinations of values, evenly spread so that each value occurs; all in a campaign.

    Args:
        part: Which fraction; at least two axes must have as many values.
        axes: The values of each parameter.
    """
    if CAMPAIGN:
        return list(product(*axes))
    places = [place for place in product(*(range(len(axis)) for axis in axes)) if sum(place) % part == 0]
    assert all({place[i] for place in places} == set(range(len(axis))) for i, axis in enumerate(axes)), (
        "a value is lost"
    )
    return [tuple(axis[i] for axis, i in zip(axes, place, strict=True)) for place in places]
