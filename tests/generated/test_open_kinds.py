"""Random networks at sizes of other kinds than the first one: batches of one and of several, squares, equal extents.

What is lowered at the first size serves them all. ``OPBUILD_FUZZ=5000`` tries so many networks.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

import opbuild
from generated.opened import Sizes
from generated.random_kinds import make_kind
from opbuild.errors import ModelError
from opbuild.frontend.onnx_model import load_model
from opbuild.runtime.binding import Shapes
from support.comparison import onnxruntime_outputs
from support.fuzzing import CAMPAIGN, SEED, check_seeds
from support.tiers import spans

SIZES = 12
RUN = CAMPAIGN // 20 or 3

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


def lowered(seed: int, sizes: int) -> tuple[int, int]:
    """Return how many sizes a network takes, and how often it is lowered for them."""
    kind = make_kind(seed)
    own = Sizes(load_model(kind.model.SerializeToString()), kind.declared)
    draw, taken = random.Random(seed), list[Shapes]()
    for _ in range(sizes):
        shapes = kind.size(draw)
        try:
            own.closed(shapes)
        except ModelError:  # a size that the network does not take
            continue
        taken.append(shapes)
    return len(taken), len(own.records(taken))


@pytest.mark.parametrize("seeds", spans(16, 8))
def test_what_is_lowered_at_the_first_size_serves_sizes_of_other_kinds(seeds: range) -> None:
    """Whatever the first size is: one of a batch of one, a square, one with extents that are equal by chance."""
    found: Counter[str] = Counter()

    def one(seed: int) -> tuple[str, str]:
        taken, count = lowered(seed, SIZES)
        found[f"lowered {count} times"] += 1
        return ("right", "") if count <= 1 else ("wrong", f"lowered {count} times for {taken} sizes")

    check_seeds("sizes of other kinds", one, seeds, processes=0)
    assert found["lowered 1 times"], found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + RUN))
def test_sizes_of_other_kinds_give_what_onnx_runtime_gives(seed: int, shared_store: Path) -> None:
    """Bound by numbers with the kernels that came with the first size."""
    kind = make_kind(seed)
    network = opbuild.compile(
        onnx.ModelProto.FromString(kind.model.SerializeToString()), cache_path=shared_store, workers=2
    )
    draw, values = random.Random(seed), np.random.default_rng(seed)
    for _ in range(6):
        shapes = kind.size(draw)
        feeds = {
            name: values.uniform(-1, 1, shape).astype(np.float32)
            for name, shape in zip(kind.declared, shapes, strict=True)
        }
        try:
            (wanted,) = onnxruntime_outputs(kind.model, feeds, optimized=False)
        except Exception:  # a size that the network does not take
            continue
        np.testing.assert_allclose(network(*feeds.values()), wanted, rtol=1e-4, atol=1e-4)
