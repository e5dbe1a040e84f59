"""Operators that run on the host, called at random, against ONNX Runtime.

Each example is a model of one node, read as any model and evaluated on the host backend. What ONNX Runtime runs,
opbuild runs, with the same results, or refuses for a reason that is listed here. A failure is shrunk to the smallest
call that shows it; the seed is printed.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, seed, settings

from generated import host_arrays, host_learned, host_moves, host_schema, host_windows, random_trees
from generated.host_cases import MAKERS, Case, cases
from opbuild.errors import ModelError, RunError
from support.fuzzing import CAMPAIGN
from support.known_differences import known_difference
from support.tiers import few
from support.walk_runner import WalkRunner

MODULES = (host_arrays, host_learned, host_moves, host_schema, host_windows)
"""Importing a module registers its makers."""

SEED = int(os.environ.get("OPBUILD_FUZZ_SEED") or (random.SystemRandom().randrange(2**32) if CAMPAIGN else 9))

EXAMPLES = CAMPAIGN or 6
"""Calls of each operator."""

ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
                     "RandomUniformLike"), "random: unit/backend/host/test_sequences.py compares their distributions"),
    **dict.fromkeys(("ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
                     "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
                     "SplitToSequence"), "no tensors: unit/backend/host/test_sequences.py"),
    **dict.fromkeys(("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"),
                    "unit/backend/host/test_strings.py"),
    "TreeEnsemble": "generated/test_random_trees.py",
    **dict.fromkeys(("If", "Loop"), "graphs: unit/graph/test_breaks.py, and onnx's own cases"),
    **dict.fromkeys(("Scan", "SequenceMap"), "graphs: generated/test_random_scans.py, generated/test_sequence_maps.py"),
    **dict.fromkeys(("Adagrad", "Adam", "Momentum"), "functions: unit/frontend/test_training.py"),
    **dict.fromkeys(("CausalConvWithState", "FlexAttention", "LinearAttention"),
                    "functions that ONNX Runtime lacks: unit/frontend/test_expansion.py, and onnx's own cases"),
    **dict.fromkeys(("CumProd", "SwiGLU"), "kernels that ONNX Runtime lacks: kernels/, and onnx's own cases"),
    "BitCast": "ONNX Runtime lacks it: onnx's own cases",
    "Constant": "has no inputs: it is always known when a network is built",
    "Gradient": "refused: it differentiates graphs",
    "ImageDecoder": "ONNX Runtime lacks it: onnx's own cases",
}  # fmt: skip
"""Operators that are not compared here, each with the reason and where it is looked at."""


LEARNED_SCHEMAS: dict[str, list[Any]] = {}
"""The schemas of each operator of ``ai.onnx.ml``, of all operator sets."""

for _schema in onnx.defs.get_all_schemas_with_history():
    if _schema.domain == host_learned.ML:
        LEARNED_SCHEMAS.setdefault(_schema.name, []).append(_schema)

_NODES = {f"nodes_{name}" for name in ("treeids", "nodeids", "featureids", "modes", "truenodeids", "falsenodeids")}

NEEDED: dict[str, set[str]] = {
    "CategoryMapper": {"cats_int64s", "cats_strings"},
    "LinearClassifier": {"coefficients", "intercepts"},
    "LinearRegressor": {"coefficients"},
    "SVMClassifier": {"coefficients", "rho"},
    "SVMRegressor": {"coefficients"},
    "TreeEnsemble": {"leaf_targetids", "leaf_weights", "nodes_falseleafs", "nodes_falsenodeids", "nodes_featureids",
                     "nodes_modes", "nodes_splits", "nodes_trueleafs", "nodes_truenodeids", "tree_roots"},
    "TreeEnsembleClassifier": _NODES | {"class_ids", "class_nodeids", "class_treeids"},
    "TreeEnsembleRegressor": _NODES | {"n_targets", "target_ids", "target_nodeids", "target_treeids"},
}  # fmt: skip
"""Attributes without which an operator computes nothing."""


def expected(case: Case) -> list[Any] | None:
    """Return ONNX Runtime's outputs, or None if it does not run the model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            case.model().SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return list(session.run(None, case.feeds()))
    except Exception:
        return None


def problem(got: Any, wanted: Any, near: float = 1e-4) -> str:
    """Return how two outputs differ, empty if they do not."""
    if isinstance(wanted, list):
        return "" if got == wanted and str(got) == str(wanted) else f"{got} is not {wanted}"
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{list(got.shape)} is not {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind == "f":
        near = 2e-3 if wanted.dtype == np.float16 else near
        got, wanted = got.astype("f8"), wanted.astype("f8")
        least = near / 10 * float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1).clip(1, 1e3))
        same = np.isclose(got, wanted, rtol=near, atol=least, equal_nan=True)
    else:
        same = got == wanted
    return "" if same.all() else f"{(~same).sum()} of {got.size} differ: {got.tolist()} is not {wanted.tolist()}"


def outcome(case: Case) -> str:
    """Return ``same``, ``both refuse``, ``known``, ``not run`` by ONNX Runtime, or how a call failed."""
    wanted = expected(host_learned.as_run(case)) or host_learned.by_text(case)
    try:
        got = WalkRunner(case.model())(**case.feeds())
    except (ModelError, RunError) as error:
        if wanted is None:
            return "both refuse"
        return known(case) or f"refuses: {error}"
    if wanted is None:
        return "not run"
    wanted = host_learned.as_asked(case, wanted)
    near = 1e-2 if case.attrs.get("post_transform") == "PROBIT" else 1e-4  # it amplifies roundings next to 1
    for number, pair in enumerate(zip(got, wanted, strict=True)):
        found = problem(*pair, near=near)
        if found:
            return known(case) or f"output {number}: {found}"
    return "same"


def known(case: Case) -> str:
    """Return ``known`` if a listed difference shows in the call."""
    return "known" if known_difference(case.model()) else ""


@pytest.mark.parametrize("op_type", few(sorted(MAKERS), 3))
def test_an_operator_on_the_host_computes_what_onnx_runtime_does(op_type: str) -> None:
    """What onnx's reference evaluator gave was wrong: norms without signs' removal, gates that ignored lengths."""
    counts: Counter[str] = Counter()

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False
    )
    @given(cases(op_type))
    def one(case: Case) -> None:
        found = outcome(case)
        counts[found] += 1
        assert found in ("same", "both refuse", "known", "not run"), f"{case}\n{found}\nOPBUILD_FUZZ_SEED={SEED}"

    one()
    if CAMPAIGN:
        print(f"\n{op_type}: {dict(counts)}, seed {SEED}", file=sys.__stderr__)
    assert counts["same"], f"nothing of {op_type} was compared: {dict(counts)}"


def test_no_operator_is_computed_by_the_host_unseen() -> None:
    """Each operator of ONNX's schemas is compared here, or it is listed where and why not; nothing is listed twice."""
    known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.deprecated}
    assert known - {*MAKERS} == {*ELSEWHERE}


def drawn_attributes(op_type: str) -> list[set[str]]:
    """Return the names of the attributes of some hundred cases of an operator of ``ai.onnx.ml``."""
    if op_type.startswith("TreeEnsemble"):
        trees = filter(lambda case: case.op_type == op_type, map(random_trees.random_case, range(400)))
        return [{*case.attrs} for case in trees]
    found: list[set[str]] = []

    @seed(1)
    @settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(cases(op_type))
    def one(case: Case) -> None:
        found.append({name for name, value in case.attrs.items() if value is not None and value != []})

    one()
    return found


@pytest.mark.slow
@pytest.mark.each
@pytest.mark.parametrize("op_type", sorted(LEARNED_SCHEMAS))
def test_every_attribute_of_a_learned_operator_is_drawn(op_type: str) -> None:
    """What any operator set has is there in some cases, and left out in others, unless nothing works without it."""
    known = {name for schema in LEARNED_SCHEMAS[op_type] for name in schema.attributes}
    drawn = drawn_attributes(op_type)
    assert set.union(*drawn) == known
    assert set.intersection(*drawn) == NEEDED.get(op_type, set())
