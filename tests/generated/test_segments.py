"""Random networks in segments against ONNX Runtime: each is walked with open extents, and serves many data so.

``OPBUILD_FUZZ=5000`` tries so many networks.
"""

from __future__ import annotations

import pytest

from generated.random_segments import RandomSegments
from generated.test_random_segments import compare, expected
from support.fuzzing import CAMPAIGN, check_seeds
from support.segments_runner import SegmentsRunner

NETWORKS, CALLS = CAMPAIGN or 25, 6

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


def test_segments_compute_what_onnx_runtime_does_whatever_data_come() -> None:
    """A segment that was walked for other data ends as it would for these, and its numbers are these."""
    compared = calls = made = segments = 0

    def one(seed: int) -> None:
        nonlocal compared, calls, made, segments
        network = RandomSegments(seed)
        runner = SegmentsRunner(network.model)
        for call in range(CALLS):
            feeds = network.feeds(seed * CALLS + call)
            wanted = expected(network, feeds)
            calls += 1
            if wanted is not None:
                compare(runner(**feeds), wanted, f"network {seed}, call {call}")
                compared += 1
        made += runner.programs_made.total()
        segments += len(runner.programs_made)

    check_seeds("networks in segments", one, NETWORKS, processes=0)
    assert compared > 0.8 * calls
    # Extents are 0 to 4: more decides there than in a network of any use, and most data would still need nothing new.
    assert made < 3 * segments, f"{segments} segments were walked {made} times for {compared} calls"
