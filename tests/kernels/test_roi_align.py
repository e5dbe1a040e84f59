"""RoiAlign samples regions of images as ONNX Runtime does."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.hostile import Case
from kernels.one_operator import check, model_of, program_of, random
from opbuild.program import HostCall
from support.tiers import halved

ATTRS = {"output_height": 3, "output_width": 2, "sampling_ratio": 2}

HOSTILE = {
    "roi_align": Case(
        "RoiAlign",
        lambda n: (2, 3, 7, 5),
        lambda n: [np.float32(np.abs(random(n, 4))) * 3, np.arange(n) % 2],
        ATTRS,
        least=1,
    ),
}
"""For ``test_every_family``."""

REGIONS = np.float32(
    [[0, 0, 4, 3], [1.5, 2.25, 3.75, 6], [-3, -2, 9, 8], [2, 2, 2, 2], [4, 5, 1, 1], [20, 20, 30, 30], [-9, 0, -5, 2]]
)
"""Inside, between pixels, over the edges, empty, turned round, and outside."""


@halved
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("transformed", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("samples", [1, 3])
def test_regions_of_every_kind(mode: str, transformed: str, samples: int) -> None:
    """Of two images, in a scale."""
    batch = np.array([0, 1, 0, 1, 1, 0, 1])
    attrs = {**ATTRS, "mode": mode, "coordinate_transformation_mode": transformed, "sampling_ratio": samples}
    check("RoiAlign", [random(2, 3, 6, 8), REGIONS, batch], spatial_scale=0.75, **attrs)


def test_as_many_samples_as_a_region_is_large_are_the_hosts() -> None:
    """How many there are is known only at run time."""
    inputs = [random(2, 3, 6, 8), REGIONS, np.zeros(7, np.int64)]
    program = program_of(model_of("RoiAlign", inputs, output_height=2, output_width=2)[0])
    assert any(isinstance(call, HostCall) for call in program.calls)
