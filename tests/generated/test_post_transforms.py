"""The post transforms of ``ai.onnx.ml`` make of any scores what ONNX Runtime makes of them: NaN, infinities, zeros too.

A case is scores, a transform and an operator whose attributes can hold any score.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper, numpy_helper

import opbuild
from opbuild.frontend.learned import LOGISTIC, NAMES, NONE, PROBIT, SOFTMAX
from support.comparison import onnxruntime_outputs
from support.fuzzing import check_seeds
from support.tiers import spans

pytestmark = pytest.mark.usefixtures("kept_objects")

Array = npt.NDArray[Any]

ML = "ai.onnx.ml"
ROWS = 6
SPECIAL = (
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -0.0,
    1e-8,
    -1e-8,
    1e-7,
    2e-7,
    0.5,
    1.0,
    88.0,
    -88.0,
    104.0,
    -200.0,
    1e30,
    -1e30,
)


@dataclass
class Case:
    """An operator that has these scores.

    Attributes:
        op_type: The operator.
        transform: Its post transform.
        scores: The scores, a row for each row of the input.
    """

    op_type: str
    transform: str
    scores: Array

    def model(self) -> onnx.ModelProto:
        """Return the model; row ``n`` of its input leads to row ``n`` of the scores."""
        attrs, rows = _ATTRIBUTES[self.op_type](self)
        names = ["label", "y"] if self.op_type.endswith("Classifier") else ["y"]
        node = helper.make_node(self.op_type, ["x"], names, domain=ML, **attrs)
        x = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(rows.dtype), rows.shape)
        graph = helper.make_graph([node], "g", [x], [helper.make_empty_tensor_value_info("y")])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 5 if self.op_type == "TreeEnsemble" else 3)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def rows(self) -> Array:
        """Return the model's input."""
        return _ATTRIBUTES[self.op_type](self)[1]


def _linear(case: Case) -> tuple[dict[str, Any], Array]:
    """Scores are the intercepts, so that all rows have the first row's."""
    case.scores[:] = case.scores[:1]
    count = case.scores.shape[1]
    attrs = {"coefficients": [0.0] * count, "intercepts": case.scores[0].tolist(), "post_transform": case.transform}
    kind = "classlabels_ints" if case.op_type == "LinearClassifier" else ""
    named = {kind: list(range(count))} if kind else {"targets": count}
    return attrs | named, np.ones((ROWS, 1), np.float32)


def _nodes(case: Case) -> tuple[dict[str, Any], Array]:
    """Of each target there is a tree that finds the row by its number."""
    rows, count = case.scores.shape
    branches = rows - 1
    per_tree: dict[str, list[Any]] = {
        "nodeids": list(range(2 * rows - 1)), "featureids": [0] * (2 * rows - 1),
        "modes": ["BRANCH_LEQ"] * branches + ["LEAF"] * rows, "values": [*map(float, range(branches)), *[0.0] * rows],
        "truenodeids": [*range(branches, 2 * branches), *[0] * rows],
        "falsenodeids": [*range(1, branches), 2 * branches, *[0] * rows],
    }  # fmt: skip
    attrs: dict[str, Any] = {f"nodes_{name}": values * count for name, values in per_tree.items()}
    attrs["nodes_treeids"] = [tree for tree in range(count) for _ in range(2 * rows - 1)]
    kind = "class" if case.op_type == "TreeEnsembleClassifier" else "target"
    attrs[f"{kind}_treeids"] = [tree for tree in range(count) for _ in range(rows)]
    attrs[f"{kind}_ids"] = attrs[f"{kind}_treeids"]
    attrs[f"{kind}_nodeids"] = list(range(branches, 2 * rows - 1)) * count
    weights = case.scores.T.reshape(-1)
    if case.scores.dtype == np.float64:
        values = np.array(attrs.pop("nodes_values"), np.float64)
        attrs["nodes_values_as_tensor"] = numpy_helper.from_array(values)
        attrs[f"{kind}_weights_as_tensor"] = numpy_helper.from_array(weights)
    else:
        attrs[f"{kind}_weights"] = weights.tolist()
    named = {"classlabels_int64s": list(range(count))} if kind == "class" else {"n_targets": count}
    x = np.arange(rows, dtype=case.scores.dtype)[:, None]
    return {**attrs, **named, "post_transform": case.transform}, x


def _leaves(case: Case) -> tuple[dict[str, Any], Array]:
    rows, count = case.scores.shape
    branches = rows - 1
    places = [tree * branches + row for tree in range(count) for row in range(branches)]
    ends = [row == branches - 1 for row in range(branches)] * count
    kind = case.scores.dtype.type
    attrs: dict[str, Any] = {
        "tree_roots": [tree * branches for tree in range(count)], "n_targets": count, "aggregate_function": 1,
        "nodes_featureids": [0] * (branches * count), "post_transform": NAMES.index(case.transform),
        "nodes_modes": numpy_helper.from_array(np.zeros(branches * count, np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.array([*range(branches)] * count, kind)),
        "nodes_truenodeids": [tree * rows + row for tree in range(count) for row in range(branches)],
        "nodes_trueleafs": [1] * (branches * count), "nodes_falseleafs": [int(each) for each in ends],
        "nodes_falsenodeids": [
            (place // branches) * rows + branches if end else place + 1 for place, end in zip(places, ends, strict=True)
        ],
        "leaf_targetids": [tree for tree in range(count) for _ in range(rows)],
        "leaf_weights": numpy_helper.from_array(case.scores.T.reshape(-1).copy()),
    }  # fmt: skip
    return attrs, np.arange(rows, dtype=kind)[:, None]


_ATTRIBUTES = {
    "LinearClassifier": _linear, "LinearRegressor": _linear, "TreeEnsemble": _leaves,
    "TreeEnsembleClassifier": _nodes, "TreeEnsembleRegressor": _nodes,
}  # fmt: skip


def random_case(seed: int) -> Case:
    """Return the case of a seed: scores of which some are special, or probabilities."""
    draw, values = random.Random(seed), np.random.default_rng(seed)
    op_type, transform = draw.choice([*_ATTRIBUTES]), draw.choice(NAMES)
    kind = np.float64 if op_type.startswith("Tree") and draw.random() < 0.4 else np.float32
    least = 3 if op_type.endswith("Classifier") else 1 if transform in (NONE, PROBIT) else 2  # else the text decides
    shape = (ROWS, draw.randint(least, 5))
    scores = values.random(shape) if draw.random() < 0.4 else values.standard_normal(shape) * draw.choice((1, 10))
    is_special = values.random(shape) < draw.choice((0, 0.2, 0.6))
    return Case(op_type, transform, np.where(is_special, values.choice(SPECIAL, shape), scores).astype(kind))


def as_runtime_numbers_it(case: Case) -> Case:
    """Return a case for ONNX Runtime: of TreeEnsemble, whose transform is a number, it takes 1 for 2 and 2 for 1."""
    swapped = {SOFTMAX: LOGISTIC, LOGISTIC: SOFTMAX} if case.op_type == "TreeEnsemble" else {}
    return replace(case, transform=swapped.get(case.transform, case.transform))


def is_out_of_reach(case: Case) -> Any:
    """Return which scores are too near to 0 and 1: ONNX Runtime computes PROBIT of float64 in float32."""
    if case.transform != PROBIT or case.scores.dtype != np.float64:
        return False
    with np.errstate(all="ignore"):
        return np.minimum(np.abs(case.scores), np.abs(case.scores - 1)) < 1e-3


def one(seed: int, cache: Path) -> tuple[str, str]:
    """Compare the case of a seed."""
    case = random_case(seed)
    model, feeds = case.model(), {"x": case.rows()}
    (wanted,) = onnxruntime_outputs(as_runtime_numbers_it(case).model(), feeds)
    (got,) = opbuild.compile(model, cache_path=cache, num_threads=1).run(None, feeds)
    near = {"rtol": 3e-5, "atol": 2e-3 if case.transform == PROBIT else 1e-6}  # whose formula cancels around a half
    is_close = np.isclose(got, wanted, equal_nan=True, **near) | is_out_of_reach(case)
    is_same = got.dtype == wanted.dtype and got.shape == wanted.shape and is_close.all()
    found = f"{case.op_type} {case.transform} of {case.scores.dtype} {case.scores.tolist()}: {got.tolist()}"
    return (case.transform, "") if is_same else ("wrong", f"{found}, not {wanted.tolist()}")


@pytest.mark.slow
@pytest.mark.parametrize("seeds", spans(60, 30))
def test_scores_become_what_onnx_runtime_makes_of_them(seeds: range, shared_store: Path) -> None:
    """Every transform, of both element types, behind every operator that has one for each row."""
    tally = check_seeds("post transforms", lambda seed: one(seed, shared_store), seeds)
    assert {*tally.outcomes} == {*NAMES}


def test_every_operator_and_element_type_is_drawn() -> None:
    """Each transform behind each operator."""
    drawn = Counter((case.op_type, case.transform) for case in map(random_case, range(1000)))
    assert len(drawn) == len(_ATTRIBUTES) * len(NAMES)
