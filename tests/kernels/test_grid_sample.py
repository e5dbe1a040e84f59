"""GridSample reads images between their pixels, as the standard's text says and the host backend computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kernels.combinations import crossed
from kernels.hostile import Case
from kernels.one_operator import Array, assert_same, check, outputs_of, random
from opbuild.backend.host.evaluate import evaluate
from opbuild.graph.types import Node

HOSTILE = {
    "grid_sample": Case(
        "GridSample", lambda n: (2, 3, 5, 4), lambda n: [np.float32(random(2, n, 3, 2))], {"mode": "linear"}, least=1
    ),
}
"""For ``test_every_family``."""

SHAPES = (((2, 3, 5, 7), (2, 4, 6, 2)), ((1, 2, 3, 4, 5), (1, 2, 3, 4, 3)), ((1, 1, 1, 1), (1, 3, 1, 2)))


def by_the_host(x: Array, grid: Array, **attrs: object) -> Array:
    """Return the output of the host backend."""
    return evaluate(Node("GridSample", ("x", "grid"), ("y",), attrs, "node"), [x, grid], 22)[0]


@pytest.mark.parametrize(
    ("mode", "padding", "shapes", "aligned"),
    crossed(2, ("nearest", "linear", "cubic"), ("zeros", "border", "reflection"), SHAPES, (0, 1)),
)
def test_every_mode_with_every_padding(
    mode: str, padding: str, shapes: tuple[Sequence[int], Sequence[int]], aligned: int
) -> None:
    """Images of two and three dimensions, of one pixel too; most places lie inside, some far outside."""
    x, grid = random(*shapes[0]), random(*shapes[1], seed=1)
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    (found,) = outputs_of("GridSample", [x, grid], opset=22, **attrs)
    assert_same(found, by_the_host(x, grid, **attrs))


@pytest.mark.parametrize(("mode", "aligned"), crossed(1, ("nearest", "linear"), (0, 1)))
def test_onnx_runtime_gives_the_same(mode: str, aligned: int) -> None:
    """Of many places, which are taken side by side."""
    check("GridSample", [random(2, 3, 9, 8), random(2, 13, 11, 2, seed=1) / 2], opset=20, mode=mode,
          align_corners=aligned)  # fmt: skip


def test_cubic_curves_go_on_beyond_the_border() -> None:
    """As torch and ONNX Runtime have it: 9.0 is what the border's own value would give."""
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    grid = np.float32([[[[0.9, 0.0], [-1.3, 0.4]]]])
    (found,) = check("GridSample", [x, grid], opset=20, mode="cubic", padding_mode="border")
    assert abs(float(found[0, 0, 0, 0]) - 9.1103) < 1e-4


def test_places_half_way_are_mirrored_before_they_are_rounded() -> None:
    """As in torch: 1.5 pixels before the first edge is mirrored to 0.5, which is rounded to 0."""
    x = np.float32(range(10, 14)).reshape(1, 1, 1, 4)
    places = np.float32([-1.5, -2.5, -0.5, 3.5, 4.5, 5.5, 7.5, 8.5])
    grid = np.stack([(2 * places + 1) / 4 - 1, np.zeros_like(places)], -1)[None, None]
    (found,) = outputs_of("GridSample", [x, grid], opset=20, mode="nearest", padding_mode="reflection")
    assert found.reshape(-1).tolist() == [10, 12, 10, 13, 12, 12, 10, 10]


def test_double_precision() -> None:
    """Places are found in it, too."""
    x, grid = random(1, 2, 9, 8, dtype="float64"), random(1, 5, 5, 2, seed=1, dtype="float64")
    (found,) = outputs_of("GridSample", [x, grid], opset=22)
    assert_same(found, by_the_host(x, grid), 1e-12)


def test_places_that_are_no_numbers_read_nothing_outside() -> None:
    """NaN and infinities in a grid: every result is something, and memory is safe."""
    grid = random(1, 4, 5, 2)
    grid[0, 0], grid[0, 1], grid[0, 2] = np.nan, np.inf, -np.inf
    for padding in ("zeros", "border", "reflection"):
        (found,) = outputs_of("GridSample", [random(1, 2, 6, 5), grid], opset=22, padding_mode=padding)
        assert np.isfinite(found[:, :, 3]).all()
