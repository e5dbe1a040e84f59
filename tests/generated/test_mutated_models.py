"""Mutated models are refused with an error of opbuild, or build, and give what ONNX Runtime gives.

With ``OPBUILD_FUZZ=5000`` in the environment so many are tried, from all one-node models of onnx too.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from generated.base_models import all_models, quick_models, small_networks
from generated.mutated_models import (
    Case,
    case_of,
    difference,
    fault_report,
    feeds_of,
    run,
    shrink,
)
from generated.mutations import MUTATIONS, mutate
from opbuild.backend.host.evaluate import evaluate
from opbuild.errors import OpbuildError
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes.pipeline import optimize
from support import campaign
from support.fuzzing import CAMPAIGN
from support.seeds import Tally, try_seeds
from support.tiers import spans

pytestmark = [pytest.mark.timeout(36000)] if CAMPAIGN else []


@pytest.mark.slow
@pytest.mark.parametrize("seeds", spans(12, 7))
def test_mutated_models_are_refused_or_give_what_onnxruntime_gives(seeds: range, tmp_path: Path) -> None:
    """No wrong result, foreign exception, dead process or hang; each would be shown with its seed and model."""
    bases = all_models() if CAMPAIGN else quick_models()
    tally = run(seeds, bases, tmp_path)
    assert not tally.faults, "\n\n".join(fault_report(*fault, bases, tmp_path) for fault in tally.faults[:5])
    assert tally.outcomes["agreed"] > len(seeds) // 10


@pytest.mark.parametrize("seeds", spans(200, 60))
def test_mutated_models_are_read_or_refused(seeds: range, tmp_path: Path) -> None:
    """As far as lowering, where most mutations end; a thousand take as long as fifty that are compiled."""
    bases = all_models() if CAMPAIGN else quick_models()

    def read(seed: int) -> tuple[str, str]:
        case = case_of(seed, bases)
        model = case.model()
        try:
            content = model.SerializeToString()
        except Exception:
            return "no-message", ""
        try:
            loaded = load_model(content)
            shapes = {name: array.shape for name, array in feeds_of(model, case.base).items() if name in loaded.inputs}
            optimize(loaded.bind(shapes, evaluate), evaluate)
        except OpbuildError as error:
            return "refused", str(error)
        return "read", ""

    tally = try_seeds("mutated models, read", read, seeds)
    shown = [f"seed {seed}: {case_of(seed, bases)}: {outcome} {said}" for seed, outcome, said in tally.faults]
    assert not shown, "\n\n".join(shown[:5])
    assert tally.outcomes["read"] > len(seeds) // 4
    assert tally.outcomes["refused"] > len(seeds) // 4


def test_every_mutation_changes_some_model_and_no_base() -> None:
    """A mutation that changes nothing tests nothing; one that changes its base spoils all seeds after it."""
    bases = small_networks()
    before = [base.model.SerializeToString() for base in bases]
    for name in MUTATIONS:
        made = [mutate(base.model, name, seed).SerializePartialToString() for base in bases for seed in range(4)]
        assert set(made) - set(before), name
    assert [base.model.SerializeToString() for base in bases] == before


def test_a_fault_is_seen_and_shrunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of ten nodes whose Div is wrong shrinks to few; of three mutations none is needed."""
    base = next(base for base in small_networks() if base.name == "layer norm")
    monkeypatch.setattr("generated.mutated_models.try_model", lambda model, *_: _faulty(model))
    case = Case(base, (("operator_set_changed", 1), ("attribute_missing", 2), ("outputs_changed", 1)))
    model, said = shrink(case, "wrong", "", tmp_path)
    assert said == "Div is wrong"
    assert [node.op_type for node in model.graph.node] == ["Div"]


def _faulty(model: onnx.ModelProto) -> tuple[str, str]:
    return ("wrong", "Div is wrong") if any(node.op_type == "Div" for node in model.graph.node) else ("agreed", "")


def test_a_seed_is_the_same_case_in_every_process() -> None:
    """A seed is printed to be tried again."""
    assert [str(case_of(seed, quick_models())) for seed in range(5)] == [
        str(case_of(seed, quick_models())) for seed in range(5)
    ]
    assert len({str(case_of(seed, quick_models())) for seed in range(50)}) > 45


def test_what_crashes_hangs_or_raises_is_counted_under_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the seeds after it are tried; a campaign's table has the dead process among what is foreign."""
    import os

    monkeypatch.setattr(campaign, "COUNTS", {})

    def one(seed: int) -> tuple[str, str]:
        if seed == 2:
            os._exit(3)
        if seed == 3:
            raise ValueError("foreign")
        return "agreed", ""

    tally: Tally = try_seeds("a test", one, range(6))
    assert dict(tally.outcomes) == {"agreed": 4, "crash": 1, "foreign": 1}
    assert sorted((seed, outcome) for seed, outcome, _ in tally.faults) == [(2, "crash"), (3, "foreign")]
    rows = [line.split() for line in campaign.table().splitlines()]
    assert rows[0] == ["class", "tried", "wrong", "foreign", "hangs"]
    assert rows[1:] == [["a", "test", "6", "0", "2", "0"], ["all", "6", "0", "2", "0"]]


def test_results_that_differ_are_told_from_rounding() -> None:
    """Numbers, NaN, shapes, element types, how many."""
    import numpy as np

    a = np.float32([1, 2, np.nan, np.inf])
    assert not difference([a], [a * np.float32(1.0001)])
    for other in (a + 1, a[:3], a.astype(np.float64), np.nan_to_num(a)):
        assert difference([a], [other])
    assert difference([a], [a, a])
    assert difference([np.int32([1])], [np.int32([2])])
