"""Shapes with open extents, compared with others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opbuild.runtime.shape_pattern import ShapePattern

SHAPES = st.lists(st.lists(st.integers(-1, 2), max_size=3), max_size=3)


@given(SHAPES, SHAPES)
def test_a_pattern_fits_shapes_whose_extents_are_its_own_where_they_are_fixed(
    declared: list[list[int]], shapes: list[list[int]]
) -> None:
    """As a look at each dimension says."""
    expected = [*map(len, declared)] == [*map(len, shapes)] and all(
        own in (-1, extent)
        for one, other in zip(declared, shapes, strict=True)
        for own, extent in zip(one, other, strict=True)
    )
    assert ShapePattern(declared).fits(shapes) == expected
