"""Random decision trees give what the text says: on kernels, on the host, and as ONNX Runtime does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from generated.random_trees import Case, expected, random_case, scores
from kernels.one_operator import Array, on_kernels
from support.comparison import onnxruntime_outputs
from support.fuzzing import CAMPAIGN, check_seeds
from support.tiers import spans
from support.walk_runner import WalkRunner


def close(found: Array, wanted: Array) -> bool:
    """Return whether scores are equal up to roundings of float32; what is NaN is NaN in both."""
    with np.errstate(all="ignore"):
        return bool(np.allclose(found.astype(np.float64), wanted, 1e-5, 1e-5, equal_nan=True))


def one(seed: int) -> tuple[str, str]:
    """Compare one case."""
    case = random_case(seed)
    wanted, labels = expected(case)
    fault = ""
    is_kernel = "classlabels_strings" not in case.attrs  # names are the host's
    if is_kernel and (len(case.x) or case.transform != "SOFTMAX"):  # of which there is no kernel for nothing
        fault = _fault(case, on_kernels(case.model(), {"x": case.x}), wanted, labels, "kernels")
    host = tuple(WalkRunner(case.model())(x=case.x))
    fault = fault or _fault(case, host, wanted, labels, "the host")
    return "wrong" if fault else case.op_type, fault


def _fault(case: Case, found: tuple[Array, ...], wanted: Array, labels: Array | None, who: str) -> str:
    if found[-1].shape != wanted.shape or not close(*_steady(found[-1], wanted, case.transform)):
        return f"{who}: {case.op_type} {case.transform} {case.aggregate}: {found[-1].tolist()} for {wanted.tolist()}"
    if labels is not None and not _same_labels(found[0], labels, wanted):
        return f"{who}: labels {found[0].tolist()} for {labels.tolist()}, scores {wanted.tolist()}"
    return ""


def _steady(found: Array, wanted: Array, transform: str) -> tuple[Array, Array]:
    """Return scores of which none is a large difference made of a rounding: PROBIT has such around 0, 0.5 and 1."""
    if transform != "PROBIT":
        return found, wanted
    kept = np.isfinite(wanted) & (np.abs(wanted) > 0.1) & (np.abs(wanted) < 2)
    return found[kept], wanted[kept]


def _same_labels(found: Array, labels: Array, scores: Array) -> bool:
    """Return whether labels are equal where no two scores nearly are."""
    if (found.dtype.kind == "i") != (labels.dtype.kind == "i") or found.shape != labels.shape:
        return False
    ordered = np.sort(scores, 1)
    clear = np.ones(len(scores), bool) if scores.shape[1] < 2 else ordered[:, -1] - ordered[:, -2] > 1e-5
    return bool((found == labels)[clear].all())


@pytest.mark.slow
@pytest.mark.parametrize("seeds", spans(25, 8))
def test_random_trees_are_what_the_text_says(seeds: range) -> None:
    """Every operator, mode, transform and aggregate; ties, NaN, infinities, shared branches, no rows."""
    check_seeds("trees", one, seeds)


def _as_onnx_runtime_has_it(case: Case) -> bool:
    """Return whether ONNX Runtime answers as the text says, or where that is silent as we do.

    It has no float64 attributes for rows of float32, and no shared branches. NaN is not equal to a number for it,
    wherever NaN is to go. Of two votes of a leaf for the only target it takes one. It leaves base values out where no
    leaf votes. Of two classes with weights it takes the second if its score is positive, and writes 0 and 1 instead of
    labels.
    """
    if case.op_type == "TreeEnsemble" or case.doubles != (case.x.dtype == np.float64) or not len(case.x):
        return False
    voted = scores(replace(case, base=[]))[1]
    if case.is_shared or case.has_doubled_votes or "BRANCH_NEQ" in case.attrs["nodes_modes"] or not voted.all():
        return False
    if case.op_type == "TreeEnsembleRegressor":
        return case.x.dtype.kind == "f" and (case.targets > 1 or case.transform in ("NONE", "PROBIT"))
    return case.targets > 2


@pytest.mark.parametrize("seeds", spans(250, 80, campaign=10 * CAMPAIGN))
def test_onnx_runtime_gives_the_same(seeds: range) -> None:
    """Where it does what the text says."""

    def compared(seed: int) -> str:
        case = random_case(seed)
        if not _as_onnx_runtime_has_it(case):
            return "has it otherwise"
        wanted, labels = expected(case)
        fault = _fault(case, onnxruntime_outputs(case.model(), {"x": case.x}), wanted, labels, "ONNX Runtime")
        assert not fault, fault
        return "equal"

    assert check_seeds("trees of ONNX Runtime", compared, seeds).outcomes["equal"] > len(seeds) // 50
