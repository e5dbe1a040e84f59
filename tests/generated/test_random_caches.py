"""Random attentions to caches with room, against ONNX Runtime: what lies behind the keys is neither read nor changed.

``OPBUILD_FUZZ=5000`` tries so many.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from generated.random_caches import Array, CachedAttention, random_attention
from opbuild.api import compile_model
from opbuild.config import Config
from opbuild.runtime.network import Network
from support.fuzzing import CAMPAIGN, check_seeds
from support.tiers import spans

CALLS = 4

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


@pytest.mark.parametrize("seeds", spans(60, 12))
def test_caches_are_continued_in_place_and_read_as_far_as_they_are_filled(seeds: range, tmp_path: Path) -> None:
    """Results are ONNX Runtime's, and the same bits whether the cache is the caller's own array or a new one."""
    config = replace(Config.from_environment(cache_path=tmp_path, num_threads=2), first="build")

    def one(seed: int) -> None:
        rng = np.random.default_rng(seed)
        attention = random_attention(rng)
        network = compile_model(attention.model.SerializeToString(), config)
        session = onnxruntime.InferenceSession(attention.model.SerializeToString(), providers=["CPUExecutionProvider"])
        for _ in range(CALLS):
            feeds, there = attention.feeds(rng)
            expected = session.run(None, attention.finite(feeds))
            _check(network, attention, feeds, there, expected)

    check_seeds("caches", one, seeds)


def _check(
    network: Network, attention: CachedAttention, feeds: dict[str, Array], there: list[int], expected: list[Array]
) -> None:
    before = {name: each.copy() for name, each in feeds.items()}
    fresh = network.run(feeds)
    for name, each in feeds.items():
        np.testing.assert_array_equal(each, before[name], err_msg=name)
    np.testing.assert_allclose(fresh["y"], expected[0], rtol=2e-4, atol=2e-5)
    for name, wanted in (("key", expected[1]), ("value", expected[2])):
        places = map(attention.by_places, (fresh[name], wanted, feeds[f"past_{name}"]))
        for got, exact, old, count in zip(*places, there, strict=True):
            plain = np.where(np.isfinite(got[:count]), got[:count], 0)  # before a window there may be no numbers
            np.testing.assert_allclose(plain, exact[:count], rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(got[count:], old[count:])
    out = {"key": feeds["past_key"], "value": feeds["past_value"]}
    inside = network.run(feeds, out=out)
    for name, each in fresh.items():
        np.testing.assert_array_equal(inside[name], each, err_msg=name)
    assert all(inside[name] is array for name, array in out.items())
