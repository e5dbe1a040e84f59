"""Networks of linear operators with factors of any exponent against float64, as models and as torch's modules.

``OPBUILD_FUZZ=5000`` tries so many.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import opbuild
from fuzzing import CAMPAIGN
from generated.random_scaled import Array, Scaled, draw
from generated.ways import outputs_of
from seeds import try_seeds

NETWORKS = CAMPAIGN or 30
MODULES = CAMPAIGN // 10 or 2
FIRST = int(os.environ.get("OPBUILD_FUZZ_SEED", "0"))
MOST = 1e-5
"""Relative errors are below: sums of some hundred products of positive numbers."""

pytestmark = pytest.mark.timeout(14400 if CAMPAIGN else 300)


def fault(got: Array, of: Scaled) -> str:
    """Return how a result is wrong, or nothing."""
    off = np.abs(got.astype("f8") / of.value - 1)
    if got.shape == of.value.shape and (off < MOST).all():
        return ""
    said = ", ".join(f"{node.op_type}" for node in of.nodes)
    exponents = {name: f"{float(np.log10(np.abs(value).max() or 1)):.1f}" for name, value in of.constants.items()}
    return f"{said}: off by {np.nanmax(off):.2e} (NaN: {np.isnan(off).sum()}); constants about {exponents}"


def try_network(seed: int, folder: Path) -> tuple[str, str]:
    """Return what becomes of a seed."""
    of, x = draw(seed)
    network = opbuild.compile(of.model(x).SerializeToString(), cache_path=folder, num_threads=1)
    said = fault(outputs_of(network, {"x": x})[0], of)
    return ("wrong", f"x about {np.log10(x.max()):.1f}: {said}") if said else ("right", "")


def test_factors_of_any_exponent_leave_all_digits(tmp_path: Path) -> None:
    """Whatever is folded into weights, or changes places with a product, is no denormal there and no infinity."""
    tally = try_seeds(
        "scaled networks",
        lambda seed: try_network(seed, tmp_path),
        range(FIRST, FIRST + NETWORKS),
        processes=os.cpu_count() or 1 if CAMPAIGN else 1,
    )
    assert not tally.faults, "\n\n".join(f"seed {seed}: {outcome}: {said}" for seed, outcome, said in tally.faults)
    assert tally.outcomes["right"] == NETWORKS, tally
