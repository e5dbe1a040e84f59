"""Repetitions: what stands for all images of a batch, and what each image has of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opbuild.graph.extents import ClosedError, Extents, example_value, parts
from opbuild.graph.formulas import Numbers
from opbuild.graph.tables import TABLES, Table
from opbuild.lowering.context import Repetitions


def test_an_offset_is_where_it_begins_and_what_each_further_image_adds() -> None:
    """Both may follow from extents; at any size the image of a number begins where lowering it by itself would."""
    extents = Extents()
    width, index = extents.input(7), extents.index()
    first, more = parts((index * 3 + 1) * width * 4 + 5)
    place = (numbers := Numbers(extents)).place
    places, formulas = [place(first), place(more)], numbers.formulas()
    for size in (7, 2, 40):
        found = formulas([size])
        assert found is not None
        assert [found[each] for each in places] == [4 * size + 5, 12 * size]
    assert parts(8) == (8, 0)
    assert [example_value(each) for each in parts(width + 1)] == [8, 0]


@pytest.mark.parametrize(
    "decide",
    [int, bool, lambda index: index > 2, lambda index: index // 2, lambda index: [0, 1][index],
     lambda index: parts(index * index)],
)  # fmt: skip
def test_the_number_of_an_image_decides_nothing(decide: Callable[[Any], Any]) -> None:
    """What would be otherwise for another image is an error: the program is not made."""
    with pytest.raises(ClosedError):
        decide(Extents().index())


def test_a_number_that_each_image_has_of_its_own_is_no_number_of_a_program() -> None:
    """Only where a view begins may differ; a size or a stride may not."""
    extents = Extents()
    with pytest.raises(ClosedError):
        Numbers(extents).place(extents.index() + 1)


def test_calls_of_a_known_number_of_images_are_not_repeated() -> None:
    """They are emitted one after the other, as they always were."""
    calls: list[int] = []
    repetitions = Repetitions(calls)
    for image in repetitions.images(3):
        calls.append(image)
    assert calls == [0, 1, 2]
    assert [repetitions.of(place) for place in range(3)] == [None] * 3


def test_what_is_repeated_first_within_a_repetition_comes_before_it() -> None:
    """An operand is brought to another layout, image by image, before what reads it; later it would be too late."""
    extents = Extents()
    count = extents.input(4)
    calls: list[str] = []
    repetitions = Repetitions(calls)
    for _ in repetitions.images(count):
        for _ in repetitions.images(count):
            calls.append("brought")
        calls += ["read", "written"]
    inner, *outer = (repetitions.of(place) for place in range(3))
    assert inner is not None
    assert inner is not outer[0]
    assert outer[0] is outer[1]

    def too_late() -> None:
        for _ in repetitions.images(count):
            calls.append("read")
            for _ in repetitions.images(count):
                calls.append("brought")
            calls.append("written")

    with pytest.raises(ClosedError):
        too_late()


def test_a_table_is_open_if_anything_that_it_is_made_of_is() -> None:
    """A tuple within a tuple too; at hand it is the one of that size."""
    extent = Extents().input(6)
    axes = ((1, 1, 1, 1, 1, 0, 0), (1, 1, 1, 1, 1, 0, 0), (extent, extent - 1, 2, 1, 1, 0, 0))
    table = Table("window counts", (axes, False, "float32"))
    assert table.is_open
    np.testing.assert_array_equal(table.example_value(), np.full((1, 1, 5), 2, np.float32))
    assert not Table("window starts", (3, 4)).is_open
    np.testing.assert_array_equal(TABLES["window starts"](3, 4), [0, 4, 8])
