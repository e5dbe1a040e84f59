"""Tabular models of scikit-learn, LightGBM and XGBoost: what ONNX Runtime takes gives the same labels and numbers.

The suite tries some; with ``OPBUILD_FUZZ`` in the environment, all that the installed libraries make.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import opbuild
from opbuild import onnxruntime as own_runtime
from support.fuzzing import CAMPAIGN
from support.tabular_lists import NOT_MADE
from support.tabular_models import Recipe, Tabular, recipes

pytestmark = pytest.mark.usefixtures("kept_objects")

KNOWN = recipes()

SOME = (
    "LogisticRegression", "LogisticRegression, 3 names", "SVC probabilities, 3 names", "SVC rbf, 2 names, no map",
    "SVC probabilities, double", "OneClassSVM", "SVR rbf", "Columns, logistic", "Imputed", "OneHotEncoder, words",
    "Normalizer", "FeatureHasher",
)  # fmt: skip
"""What the suite tries: text, maps, missing values, kernels of support vectors, columns of several types."""

NEAR = 1e-6
"""How far numbers may be apart, relative to themselves or to the greatest one."""

ROW_COUNTS = (1, 7, 80) if CAMPAIGN else (1, 80)


def of_runtime(tabular: Tabular, feeds: dict[str, Any]) -> list[Any] | None:
    """Return the outputs of ONNX Runtime for rows, or None if it does not take the model or them."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(tabular.model.SerializeToString(), options)
        return list(session.run(None, feeds))
    except Exception:
        return None


def difference(got: Any, wanted: Any) -> str:
    """Return how two results differ, empty if they do not."""
    if isinstance(wanted, list):
        same = isinstance(got, list) and len(got) == len(wanted)
        return next(filter(None, map(difference, got, wanted)), "") if same else f"{got} is not {wanted}"
    if isinstance(wanted, dict):
        kinds = [[(key, type(value)) for key, value in each.items()] for each in (got, wanted)]
        values = (np.array([*each.values()]) for each in (got, wanted))
        return difference(*values) if kinds[0] == kinds[1] else f"{got} is not {wanted}"
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.shape != wanted.shape or (got.dtype != wanted.dtype and wanted.dtype.kind not in "OU"):
        return f"{got.dtype}{list(got.shape)} is not {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind != "f":
        return "" if (got == wanted).all() else f"{got} is not {wanted}"
    least = NEAR * np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
    far = ~np.isclose(got, wanted, rtol=NEAR, atol=least, equal_nan=True)
    return f"{far.sum()} of {far.size} numbers differ: {got[far][:4]} is not {wanted[far][:4]}" if far.any() else ""


def is_nearer(got: Any, wanted: Any, predicted: Any) -> bool:
    """Return whether numbers are nearer to what an estimator gives than ONNX Runtime's, whose sums lose digits."""
    if predicted is None:
        return False
    exact = np.resize(predicted[::-1], (len(got), *predicted.shape[1:])).reshape(got.shape)
    return bool((np.abs(got - exact) <= np.abs(wanted - exact) + NEAR * np.abs(exact).max()).all())


def check(recipe: Recipe, folder: Path) -> None:
    """Check a model as a network and as a session, with several numbers of rows."""
    tabular = recipe()
    network = opbuild.compile(tabular.model, cache_path=folder)
    session = own_runtime.InferenceSession(tabular.model.SerializeToString())
    compared = 0
    for count in ROW_COUNTS:
        feeds = {name: np.resize(each[::-1], (count, *each.shape[1:])) for name, each in tabular.feeds.items()}
        wanted = of_runtime(tabular, feeds)
        if wanted is None:
            continue
        compared += 1
        for run in (network.run, session.run):
            for number, pair in enumerate(zip(run(None, feeds), wanted, strict=True)):
                found = difference(*pair)
                if found and is_nearer(*pair, tabular.predicted):
                    continue
                assert not found, f"output {number} of {count} rows: {found}"
    assert compared, "ONNX Runtime takes the model for no number of rows"


@pytest.mark.slow
@pytest.mark.skipif(not KNOWN, reason="scikit-learn and skl2onnx, or LightGBM and onnxmltools, are not installed")
@pytest.mark.parametrize("name", sorted(KNOWN) if CAMPAIGN else SOME)
def test_a_tabular_model_gives_what_onnx_runtime_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels are the same, numbers within 1e-6, and so are dictionaries from labels to numbers."""
    if name not in KNOWN:
        pytest.skip("the library that makes it is not installed")
    monkeypatch.setenv("MS_COMPILER_CACHE_PATH", str(tmp_path))
    check(KNOWN[name], tmp_path)


@pytest.mark.skipif(find_spec("skl2onnx") is None, reason="skl2onnx is not installed")
def test_every_estimator_that_is_converted_is_tried() -> None:
    """What skl2onnx converts is among the models, or there is a reason that it is not."""
    supported = import_module("skl2onnx._supported_operators").sklearn_operator_name_map
    convertible = {each.__name__ for each in supported}
    spelt = set(re.findall(r"\w+", repr([recipe.estimator for recipe in KNOWN.values()])))
    assert convertible - spelt == {*NOT_MADE}
