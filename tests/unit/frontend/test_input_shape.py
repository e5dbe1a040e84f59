"""The text of ``--shape`` where extents are left open."""

from __future__ import annotations

import pytest

from opbuild.errors import OptionError
from opbuild.frontend.input_shape import format_input_shape, parse_input_shape, parse_open_shape


def test_any_extent_and_ranges_are_read_as_they_are_written() -> None:
    """-1 is any extent, ``a~b`` a range, ``a~-1`` one without an end; the text comes back."""
    shapes = parse_open_shape("x:-1,3,1~640, 32 ~ -1; y:a:7~7;s:")
    assert shapes == {"x": (-1, 3, (1, 640), (32, -1)), "y:a": (7,), "s": ()}
    assert format_input_shape(shapes) == "x:-1,3,1~640,32~-1;y:a:7;s:"
    assert parse_open_shape(format_input_shape(shapes)) == shapes


@pytest.mark.parametrize("extent", ["640~1", "0~4", "-2", "1~", "~4", "1~2~3", "1.5", "two", "", "1~9999999999", "٣"])
def test_an_extent_of_another_form_is_refused_with_the_part_at_fault(extent: str) -> None:
    """The message shows the extent, and what is allowed."""
    with pytest.raises(OptionError, match="--shape") as caught:
        parse_open_shape(f"x:1,{extent}")
    assert repr(extent) in caught.value.message
    assert "1~640" in caught.value.hint


@pytest.mark.parametrize("text", ["x:-1,3", "x:1~4,3"])
def test_shapes_that_must_be_known_take_no_open_extent(text: str) -> None:
    """Commands that build for one size say that they need numbers."""
    with pytest.raises(OptionError, match="has the dimension") as caught:
        parse_input_shape(text)
    assert "give a number" in caught.value.hint
