"""Gradients of what interpolates images: grids, regions, deformed convolutions, against differences and torch."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from opbuild.graph.gradients.reverse import differentiate
from support.gradient_checks import check, draw, one_node, ours, told, torchs
from support.graph_runner import run_graph

__all__ = ["told"]

PADDINGS = ("zeros", "border", "reflection")

IMAGES, GRID = draw(2, 3, 4, 5), draw(2, 3, 2, 2, low=-1.4, high=1.4, seed=3)
VOLUMES, POINTS = draw(1, 2, 3, 2, 4), draw(1, 2, 2, 1, 3, low=-1.3, high=1.3, seed=4)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize(("mode", "padding"), [*product(("linear", "nearest", "cubic"), PADDINGS)])
def test_a_grids_samples_have_gradients(mode: str, padding: str, aligned: int) -> None:
    """By images and by places, some of which lie outside; of two and of three dimensions."""
    attrs: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    check("GridSample", IMAGES, GRID, **attrs)
    if mode != "cubic":
        check("GridSample", VOLUMES, POINTS, **attrs)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize(("mode", "padding"), [*product(("bilinear", "nearest", "bicubic"), PADDINGS)])
def test_a_grids_gradients_are_torchs(mode: str, padding: str, aligned: bool) -> None:
    """Corners too: places on pixels, and on the border where that mirrors nothing.

    But for a cubic border, which torch places otherwise.
    """
    if (mode, padding) == ("bicubic", "border"):
        pytest.skip("torch clips neighbours, ONNX the place")
    grid = GRID.copy()
    grid[0, 0, 0] = 0.0
    if padding != "reflection":
        grid[0, 0, 1] = [-1.0, 1.0]
    wanted = torchs(
        lambda x, g: torch.nn.functional.grid_sample(x, g, mode=mode, padding_mode=padding, align_corners=aligned),
        IMAGES,
        grid,
    )
    found = ours("GridSample", IMAGES, grid, mode=mode.removeprefix("bi"), padding_mode=padding, align_corners=aligned)
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-8, atol=1e-10)


REGIONS = np.array([[0.3, 0.7, 3.1, 2.9], [-2.0, 1.1, 5.5, 7.3], [1.2, 0.4, 2.0, 0.9]])


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("corners", ["half_pixel", "output_half_pixel"])
def test_regions_have_gradients_by_the_image(mode: str, corners: str) -> None:
    """Inside, partly outside, smaller than a pixel; corners get none, as in torchvision."""
    check("RoiAlign", draw(2, 3, 4, 5), REGIONS, np.array([1, 0, 1]), only=(0,), mode=mode, output_height=2,
          output_width=3, sampling_ratio=2, spatial_scale=0.8, coordinate_transformation_mode=corners)  # fmt: skip


@pytest.mark.parametrize(("op_type", "arrays"), [
    ("GridSample", (np.zeros((0, 1, 2, 2)), np.zeros((0, 3, 3, 2)))),
    ("GridSample", (np.zeros((1, 1, 2, 2)), np.zeros((1, 0, 3, 2)))),
    ("RoiAlign", (np.zeros((1, 1, 2, 2)), np.zeros((0, 4)), np.zeros(0, np.int64))),
])  # fmt: skip
def test_samples_of_nothing_have_gradients_of_zero(op_type: str, arrays: Any) -> None:
    """No images, no places, no regions."""
    attrs = {"sampling_ratio": 1} if op_type == "RoiAlign" else {}
    graph, feeds = one_node(op_type, arrays, attrs)
    for given, found in zip(feeds.values(), run_graph(differentiate(graph, tuple(feeds)), feeds)[1:], strict=True):
        assert found.shape == given.shape
        assert not found.any()


def test_a_deformed_convolutions_gradients_are_those_of_its_formula() -> None:
    """It has kernels in float32 only, so the formula is torch's, of grid_sample, in float64."""
    x, w = (draw(*shape, seed=number).astype("f4") for number, shape in enumerate(((1, 2, 5, 5), (2, 2, 2, 2))))
    offset, mask = draw(1, 8, 4, 4, low=-0.9, high=0.9, seed=2).astype("f4"), draw(1, 4, 4, 4, seed=3).astype("f4")

    def formula(x: torch.Tensor, w: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        down, across = torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="ij")
        taps = []
        for number in range(4):
            places = (across + number % 2 + offset[:, 2 * number + 1], down + number // 2 + offset[:, 2 * number])
            grid = torch.stack([(2 * place + 1) / 5 - 1 for place in places], -1)
            taps.append(torch.nn.functional.grid_sample(x, grid, align_corners=False) * mask[:, number, None])
        return torch.einsum("nckhw,ock->nohw", torch.stack(taps, 2), w.flatten(2))

    wanted = torchs(formula, *(each.astype(np.float64) for each in (x, w, offset, mask)))
    found = ours("DeformConv", x, w, offset, None, mask, kernel_shape=(2, 2))
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-4, atol=2e-5)
