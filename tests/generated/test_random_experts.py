"""Random mixtures of experts of com.microsoft give what ONNX Runtime gives.

``OPBUILD_FUZZ=5000`` tries so many.
"""

from __future__ import annotations

import numpy as np
import pytest

import opbuild
from generated.random_experts import random_experts
from opbuild.errors import OpbuildError
from support.comparison import onnxruntime_output
from support.fuzzing import CAMPAIGN, check_seeds
from support.tiers import spans

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


def compared(seed: int) -> tuple[str, str]:
    """Return the outcome of the experts of a seed."""
    experts = random_experts(seed)
    wanted = onnxruntime_output(experts.given, experts.feeds)
    feeds = {value.name: experts.feeds[value.name] for value in experts.model.graph.input}
    try:
        (got,) = opbuild.compile(experts.model).run(None, feeds)
    except OpbuildError as error:
        return "foreign", f"{type(error).__name__}: {error}"
    error = np.abs(got.astype("f8") - wanted).max() / max(np.abs(wanted).max(), 1)
    said = f"{error:.1e} off: {experts.model.graph.node[0].attribute}"
    return ("right", "") if got.shape == wanted.shape and error < 2e-5 else ("wrong", said)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", spans(15, 4))
def test_experts_give_what_onnx_runtime_gives(seeds: range) -> None:
    """Floats and few bits, all activations and ways to route, weights known or given, equal scores among them."""
    check_seeds("experts", compared, seeds)
