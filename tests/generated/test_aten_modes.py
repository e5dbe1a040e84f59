"""Every operator of ATen that has a rule, in all its modes: what torch computes, or it is left to torch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the front end of torch needs torch")

from fuzzing import CAMPAIGN, SEED  # noqa: E402
from generated.aten.drawing import MAKERS  # noqa: E402
from generated.aten.running import MODULES, outcome, overload_of  # noqa: E402
from opbuild.frontend.torch.registry import RULES  # noqa: E402
from opbuild.frontend.torch.rules import load_rules  # noqa: E402

load_rules()

CALLS = min(CAMPAIGN, 2000) or 12
"""Calls of each operator on the host; kernels compute some of them."""

NAMES = [name for name in RULES if overload_of(name) is not None]


def test_every_rule_has_calls_that_are_drawn() -> None:
    """A rule without a maker of calls would be compared with torch by nothing; nor is there a maker of no rule."""
    assert MODULES
    assert set(RULES) == set(MAKERS)
    assert {*RULES} - {*NAMES} <= {"aten.rsub.Tensor", "prims.fma.default"}
