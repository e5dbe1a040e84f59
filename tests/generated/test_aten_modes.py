"""Every operator of ATen that has a rule, in all its modes: what torch computes, or it is left to torch."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from inspect import Parameter, signature
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the front end of torch needs torch")

from generated.aten.drawing import MAKERS  # noqa: E402
from generated.aten.running import MODULES, outcome, overload_of  # noqa: E402
from opbuild.frontend.torch.builder import RULES, rule_of  # noqa: E402
from support.fuzzing import CAMPAIGN, SEED, check_seeds  # noqa: E402
from support.tiers import spans  # noqa: E402

CALLS = spans(2, 1, campaign=min(CAMPAIGN, 1000))
"""Calls of each operator, computed on the host."""

COMPILED = min(CAMPAIGN, 12) or 1
"""Calls of each operator that kernels compute; the suite tries some operators."""

CHOSEN = len(RULES) if CAMPAIGN else 8
"""Operators that kernels compute."""

ON_GPUS = {f"aten._scaled_dot_product_{name}_attention.default" for name in ("flash", "efficient", "cudnn")}
"""Overloads that torch computes on GPUs alone; ``tests/system/test_torch_cuda.py`` has them."""

NAMES = [name for name in map(".".join, RULES) if overload_of(name) is not None and name not in ON_GPUS]

LACKING = {"aten.rsub.Tensor", "prims.fma.default"}
"""Overloads with rules that not every release of torch has, or has loaded."""


def test_every_rule_has_calls_that_are_drawn() -> None:
    """A rule without a maker of calls would be compared with torch by nothing; nor is there a maker of no rule."""
    assert MODULES
    known = {*map(".".join, RULES)} - ON_GPUS
    assert known == set(MAKERS)
    assert known - {*NAMES} <= LACKING


def test_a_rule_knows_the_arguments_that_are_handed_over_by_name() -> None:
    """Torch hands them over by its names; a rule that calls one otherwise would refuse each such call."""
    for name in NAMES:
        parameters = signature(rule_of(name)).parameters
        if any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
            continue
        asked = {each.name for each in overload_of(name)._schema.arguments if each.kwarg_only}
        assert asked <= {*parameters} | {"non_blocking"}, name


def tried(names: list[str], seeds: range, cache: Path | None) -> Counter[str]:
    """Try calls of some operators; one that is not as torch has it fails the test, by its name and seed."""
    found: dict[str, Counter[str]] = {name: Counter() for name in names}

    def one(number: int) -> str:
        seed, place = divmod(number, len(names))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            became = outcome(names[place], seed, cache)[0]
        found[names[place]][became] += 1
        return became

    numbers = range(seeds.start * len(names), seeds.stop * len(names))
    tally = check_seeds(f"operators of ATen on {'kernels' if cache else 'the host'}", one, numbers, processes=0)
    if CAMPAIGN and cache is None:
        assert not [name for name in names if not found[name]["same"]], "no call of these was compared"
    return tally.outcomes


@pytest.mark.timeout(36000 if CAMPAIGN else 600)
@pytest.mark.parametrize("seeds", CALLS)
def test_every_rule_computes_what_torch_computes_in_all_modes(seeds: range) -> None:
    """Modes, special numbers, halves, extremes, empty tensors, every element type: on the host, node by node."""
    found = tried(NAMES, seeds, None)
    assert found["same"] > 0.8 * found.total()


@pytest.mark.slow
@pytest.mark.timeout(36000 if CAMPAIGN else 600)
def test_kernels_compute_what_torch_computes_in_all_modes(shared_store: Path) -> None:
    """Some operators by the seed, all in a campaign, compiled as networks are."""
    names = random.Random(SEED).sample(NAMES, min(CHOSEN, len(NAMES)))
    assert tried(names, range(SEED, SEED + COMPILED), shared_store)["same"]
