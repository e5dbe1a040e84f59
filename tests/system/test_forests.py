"""Forests as people train and export them: labels as ONNX Runtime's, probabilities to 1e-6, from kernels alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

import opbuild
from opbuild.config import Config
from support.comparison import onnxruntime_outputs

pytestmark = pytest.mark.usefixtures("kept_objects")

ensemble = pytest.importorskip("sklearn.ensemble", reason="scikit-learn is not installed")
lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed")
xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed")
pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
pytest.importorskip("onnxmltools", reason="onnxmltools is not installed")

Array = npt.NDArray[Any]
FEATURES, SAMPLES = 6, 300


def data(missing: bool = False, categories: bool = False) -> tuple[Array, Array]:
    """Return rows, some of whose features are missing or categories, and a score for each."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((SAMPLES, FEATURES)).astype(np.float32)
    score = x[:, 0] + 2 * np.sin(2 * x[:, 1]) * x[:, 2]
    if categories:
        x[:, 5] = draw.integers(0, 12, SAMPLES)
        score = score + np.isin(x[:, 5], (1, 4, 7, 11)) * 3
    if missing:
        x[draw.random(x.shape) < 0.2] = np.nan
    return x, score


def classes(score: Array, count: int) -> Array:
    """Return as many classes of much the same size."""
    return np.digitize(score, np.quantile(score, np.arange(1, count) / count))


def of_sklearn(model: Any, y: Array, x: Array) -> onnx.ModelProto:
    """Return a scikit-learn model as skl2onnx exports it."""
    import skl2onnx

    model.fit(x, y)
    options = {id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else None
    return skl2onnx.to_onnx(model, x[:1], options=options)


def of_boosters(model: Any, y: Array, x: Array, **fit: Any) -> onnx.ModelProto:
    """Return a LightGBM or XGBoost model as onnxmltools exports it."""
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    model.fit(x, y, **fit)
    types = [("x", FloatTensorType([None, FEATURES]))]
    if type(model).__module__.startswith("xgboost"):
        return onnxmltools.convert_xgboost(model, initial_types=types, target_opset=15)
    return onnxmltools.convert_lightgbm(model, initial_types=types, zipmap=False, target_opset=15)


def _forests() -> dict[str, Callable[[], tuple[onnx.ModelProto, Array]]]:
    """Return by name what trains a model and gives rows for it."""
    x, score = data()
    rough, rough_score = data(missing=True)
    named, named_score = data(missing=True, categories=True)
    two, three = classes(score, 2), classes(score, 3)
    sk, few = ensemble, {"n_estimators": 12, "random_state": 0}
    gbm = {"n_estimators": 12, "verbose": -1, "n_jobs": 1}
    return {
        "RandomForestClassifier of two": lambda: (of_sklearn(sk.RandomForestClassifier(**few), two, x), x),
        "RandomForestClassifier of three": lambda: (of_sklearn(sk.RandomForestClassifier(**few), three, x), x),
        "ExtraTreesClassifier": lambda: (of_sklearn(sk.ExtraTreesClassifier(max_depth=4, **few), three, x), x),
        "RandomForestRegressor": lambda: (of_sklearn(sk.RandomForestRegressor(**few), score, x), x),
        "RandomForestRegressor of two targets": lambda: (
            of_sklearn(sk.RandomForestRegressor(**few), np.stack([score, -(score**2)], 1), x), x,
        ),
        "GradientBoostingClassifier of two": lambda: (of_sklearn(sk.GradientBoostingClassifier(**few), two, x), x),
        "GradientBoostingClassifier of three": lambda: (of_sklearn(sk.GradientBoostingClassifier(**few), three, x), x),
        "GradientBoostingRegressor": lambda: (of_sklearn(sk.GradientBoostingRegressor(**few), score, x), x),
        "LGBMClassifier of two": lambda: (of_boosters(lightgbm.LGBMClassifier(**gbm), two, x), x),
        "LGBMClassifier of three": lambda: (of_boosters(lightgbm.LGBMClassifier(**gbm), three, x), x),
        "LGBMRegressor with categories": lambda: (
            of_boosters(lightgbm.LGBMRegressor(**gbm), named_score, named, categorical_feature=[5]), named,
        ),
        "XGBClassifier of two": lambda: (of_boosters(xgboost.XGBClassifier(n_estimators=12), two, x), x),
        "XGBClassifier of three": lambda: (
            of_boosters(xgboost.XGBClassifier(n_estimators=12), classes(rough_score, 3), rough), rough,
        ),
        "XGBRegressor": lambda: (of_boosters(xgboost.XGBRegressor(n_estimators=12), rough_score, rough), rough),
    }  # fmt: skip


FORESTS = _forests()


def trained(name: str) -> tuple[onnx.ModelProto, Array]:
    """Return a model and rows for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FORESTS[name]()


def assert_same(found: Any, wanted: Any, name: str) -> None:
    """Labels are equal, and numbers to 1e-6 of the greatest."""
    for one, other in zip(map(np.asarray, found), map(np.asarray, wanted), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), name
        if other.dtype.kind != "f":
            np.testing.assert_array_equal(one, other, err_msg=name)
        else:
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6 * np.abs(other).max(), err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORESTS)
def test_a_forest_answers_as_onnx_runtime_does(name: str, shared_store: Path) -> None:
    """One row, a few, and more than are taken side by side, of one network; nothing is computed on the host."""
    model, x = trained(name)
    net = opbuild.compile(model, cache_path=shared_store, workers=1, num_threads=1)
    port = net.inputs[0].name
    for rows in (1, 2, 5, 100):
        wanted = onnxruntime_outputs(model, {port: x[:rows]})
        assert_same(net.run(None, {port: x[:rows]}), wanted, f"{name}, {rows} rows")
    assert not net.report.host


def test_classes_with_names(shared_store: Path) -> None:
    """They are text; all else is computed by kernels."""
    x, score = data()
    names = np.array(["high", "low", "ζ"])[classes(score, 3)]
    model = of_sklearn(ensemble.RandomForestClassifier(5, random_state=0), names, x)
    net = opbuild.compile(model, cache_path=shared_store, workers=1, num_threads=1)
    label, scores = net(x[:20])
    wanted = onnxruntime_outputs(model, {"X": x[:20]})
    assert label.tolist() == wanted[0].tolist()
    np.testing.assert_allclose(scores, wanted[1], 1e-6, 1e-6)
    assert {*net.report.host} <= {"ClassNames", "Identity"}


@pytest.mark.slow
def test_a_second_start_compiles_and_packs_nothing(tmp_path: Path) -> None:
    """Records are stored as weights are."""
    model, x = trained("LGBMClassifier of three")
    for built in (True, False):
        net = opbuild.compile(model, cache_path=tmp_path)
        label, scores = net(x[:40])
        assert bool(net.report.built) is built
    assert_same((label, scores), onnxruntime_outputs(model, {"x": x[:40]}), "second start")


def test_a_forest_is_an_offline_model(shared_store: Path, tmp_path: Path) -> None:
    """For a number of rows."""
    model, x = trained("XGBClassifier of two")
    config = Config(cache_path=shared_store, workers=1, num_threads=1)
    name = model.graph.input[0].name
    path = opbuild.export(model, tmp_path / "forest", input_shapes={name: (40, FEATURES)}, config=config)
    offline = opbuild.load(path)
    assert_same(offline.run(None, {name: x[:40]}), onnxruntime_outputs(model, {name: x[:40]}), "offline")
    assert not offline.report.host
