"""Tabular models as their users have them: estimators of scikit-learn, LightGBM and XGBoost, trained and converted.

Each is trained on a few rows when it is asked for. What is not installed leaves its models out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx

from support.tabular_lists import (
    CLASSIFIERS,
    ENCODERS,
    HASHERS,
    IMPUTERS,
    LABELLERS,
    LIGHTGBM,
    NAMED,
    OF_TARGETS,
    OF_TWO,
    PIPELINES,
    POSITIVE,
    REGRESSORS,
    TEXTS,
    TRANSFORMERS,
    XGBOOST,
    Spelt,
)

Array = np.ndarray[Any, Any]

ROWS, FEATURES = 80, 5
OPSET, OLD_OPSET, ML_OPSET = 21, 15, 3


@dataclass(frozen=True)
class Tabular:
    """A converted model.

    Attributes:
        model: The model.
        feeds: Inputs, by name.
        predicted: What the estimator itself makes of them in float64, if it is a regressor.
    """

    model: onnx.ModelProto
    feeds: Mapping[str, Any]
    predicted: Array | None = None


@dataclass(frozen=True)
class Recipe:
    """How a model is made.

    Attributes:
        estimator: The estimator, spelt out.
        rows: Returns its rows, or columns by name, and what is to be learned; None: nothing.
        kind: Which library converts it.
        options: Of skl2onnx.
        double: Whether the model computes in float64.
    """

    estimator: Spelt
    rows: Callable[[], tuple[Any, Any]]
    kind: str = "sklearn"
    options: Mapping[str, Any] = field(default_factory=dict)
    double: bool = False

    def __call__(self) -> Tabular:
        """Train the estimator and convert it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows, wanted = self.rows()
            table = _table(rows)
            estimator = built(self.estimator)
            fitted = estimator.fit(table) if wanted is None else estimator.fit(table, wanted)
            convert = _from_sklearn if self.kind == "sklearn" else _from_boosted
            is_regressor = isinstance(fitted, import_module("sklearn.base").RegressorMixin)
            predicted = fitted.predict(table) if is_regressor else None
            return Tabular(convert(self, fitted, rows), _feeds(rows, self.double), predicted)


def built(spelt: Any) -> Any:
    """Return an estimator: ``("svm.SVC", {...})`` is scikit-learn's, ``("lightgbm:LGBMRegressor", {})`` another's."""
    if isinstance(spelt, list):
        return [built(each) for each in spelt]
    if not isinstance(spelt, tuple) or len(spelt) != 2 or not isinstance(spelt[1], dict):
        return tuple(map(built, spelt)) if isinstance(spelt, tuple) else spelt
    path, options = spelt
    package, _, name = path.rpartition(":")
    module, _, name = name.rpartition(".") if not package else (package, "", name)
    found = getattr(import_module(module if package else f"sklearn.{module}"), name)
    args = built(list(options.get("args", ())))
    return found(*args, **{key: built(value) for key, value in options.items() if key != "args"})


def _table(rows: Any) -> Any:
    if not isinstance(rows, dict):
        return rows[:, 0] if rows.dtype == object and rows.shape[1] == 1 else rows
    return np.concatenate([each.astype(object) for each in rows.values()], 1)


def _feeds(rows: Any, double: bool) -> dict[str, Any]:
    named = rows if isinstance(rows, dict) else {"x": rows}
    wide = np.float64 if double else np.float32
    return {name: each.astype(wide) if each.dtype.kind == "f" else each for name, each in named.items()}


def _type_of(rows: Array, double: bool) -> Any:
    kinds = {"O": "String", "i": "Int64", "f": "Double" if double else "Float"}
    types = import_module("skl2onnx.common.data_types")
    return getattr(types, f"{kinds[rows.dtype.kind]}TensorType")([None, rows.shape[1]])


def _from_sklearn(recipe: Recipe, estimator: Any, rows: Any) -> onnx.ModelProto:
    import skl2onnx

    named = rows if isinstance(rows, dict) else {"x": rows}
    model: onnx.ModelProto = skl2onnx.to_onnx(
        estimator,
        initial_types=[(name, _type_of(each, recipe.double)) for name, each in named.items()],
        options={id(estimator): dict(recipe.options)} if recipe.options else None,
        target_opset={"": OPSET, "ai.onnx.ml": ML_OPSET},
    )
    return model


def _from_boosted(recipe: Recipe, estimator: Any, rows: Array) -> onnx.ModelProto:
    import onnxmltools

    kind = import_module("onnxmltools.convert.common.data_types").FloatTensorType
    convert = getattr(onnxmltools, f"convert_{recipe.kind}")
    model: onnx.ModelProto = convert(
        estimator, initial_types=[("x", kind([None, rows.shape[1]]))], target_opset=OLD_OPSET, **recipe.options
    )
    return model


# -- rows --------------------------------------------------------------------------------------------------------------


def numbers(*, positive: bool = False, missing: bool = False) -> Array:
    """Return rows of numbers."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((ROWS, FEATURES)).astype(np.float32)
    x = np.abs(x) if positive else x
    return np.where(draw.random(x.shape) < 0.2, np.float32(np.nan), x) if missing else x


def classes_of(x: Array, count: int, *, names: bool = False) -> Array:
    """Return a class of each row, which its numbers decide but for some noise."""
    x = np.nan_to_num(x)
    score = x[:, 0] * 1.5 + x[:, 1] - x[:, 2] * 0.5 + np.random.default_rng(5).standard_normal(len(x)) * 0.3
    ranks = np.searchsorted(np.quantile(score, np.linspace(0, 1, count + 1)[1:-1]), score)
    return np.array(["red", "green", "blue", "grey"])[ranks] if names else ranks.astype(np.int64)


def classed(count: int = 2, **options: bool) -> Callable[[], tuple[Any, Any]]:
    """Return a maker of rows and their classes."""
    names = options.pop("names", False)
    return lambda: (numbers(**options), classes_of(numbers(**options), count, names=names))


def _labelled() -> tuple[Any, Any]:
    x = numbers()
    return x, np.stack([x[:, 0] > 0, x[:, 1] + x[:, 2] > 0], 1).astype(np.int64)


def targeted(count: int = 1, *, positive: bool = False) -> Callable[[], tuple[Any, Any]]:
    """Return a maker of rows and numbers that depend on them."""

    def make() -> tuple[Any, Any]:
        x = numbers(positive=positive)
        y = x @ np.arange(1.0, FEATURES * count + 1).reshape(FEATURES, count) + 0.1 * np.sin(9 * x[:, :1])
        y = np.abs(y) + 0.1 if positive else y
        return x, y[:, 0] if count == 1 else y

    return make


def _words() -> Array:
    draw = np.random.default_rng(2)
    return np.array(["low", "middle", "high", "none"], object)[draw.integers(0, 4, (ROWS, 2))]


def _square() -> tuple[Any, None]:
    x = numbers()[:FEATURES]
    return x @ x.T, None


def _constantly() -> tuple[Any, Any]:
    x, labels = _labelled()
    return x, np.concatenate([labels, np.ones((len(x), 1), np.int64)], 1)


def _integers() -> Array:
    return np.random.default_rng(2).integers(0, 4, (ROWS, 3))


def _texts() -> tuple[Any, Any]:
    draw = np.random.default_rng(4)
    words = np.array(["red", "green", "blue", "sky", "grass", "is", "the", "not"], object)
    texts = np.array([" ".join(words[draw.integers(0, len(words), 6)]) for _ in range(ROWS)], object)
    return texts.reshape(-1, 1), np.array(["sky" if "sky" in each else "land" for each in texts])


def _columns() -> tuple[Any, Any]:
    x = numbers()
    return {"a": x[:, :1], "b": x[:, 1:2], "w": _words()[:, :1]}, classes_of(x, 2)


# -- models ------------------------------------------------------------------------------------------------------------


def recipes() -> dict[str, Recipe]:
    """Return how each model is made that the installed libraries make."""
    found = {**dict(_classifiers()), **dict(_others())} if find_spec("skl2onnx") and find_spec("sklearn") else {}
    for package, listed in (("lightgbm", LIGHTGBM), ("xgboost", XGBOOST)):
        if find_spec(package) and find_spec("onnxmltools"):
            found |= dict(_boosted(package, listed))
    return found


def _classifiers() -> Iterator[tuple[str, Recipe]]:
    for name, estimator in CLASSIFIERS.items():
        yield name, Recipe(estimator, classed())
        if name not in OF_TWO:
            yield f"{name}, 3 classes", Recipe(estimator, classed(3))
    for name in NAMED:
        for count in (2, 3):
            rows = classed(count, names=True)
            yield f"{name}, {count} names", Recipe(CLASSIFIERS[name], rows)
            yield f"{name}, {count} names, no map", Recipe(CLASSIFIERS[name], rows, options={"zipmap": False})
    for name in ("LogisticRegression", "SVC probabilities", "RandomForestClassifier"):
        yield f"{name}, columns", Recipe(CLASSIFIERS[name], classed(3), options={"zipmap": "columns"})
        yield f"{name}, double", Recipe(CLASSIFIERS[name], classed(3), options={"zipmap": False}, double=True)
    for name in ("LogisticRegression", "SVC probabilities", "LinearSVC"):
        options = {"raw_scores": True} if name == "LinearSVC" else {"zipmap": False, "raw_scores": True}
        yield f"{name}, raw scores", Recipe(CLASSIFIERS[name], classed(3), options=options)
    for name, estimator in POSITIVE.items():
        yield name, Recipe(estimator, classed(3, positive=True))
    for name, estimator in LABELLERS.items():
        yield f"{name}, two labels", Recipe(estimator, _labelled, options={"zipmap": False})


def _others() -> Iterator[tuple[str, Recipe]]:
    for name, estimator in REGRESSORS.items():
        yield name, Recipe(estimator, targeted(positive=True))
        if name in ("LinearRegression", "Ridge", "RandomForestRegressor", "KNeighborsRegressor", "MLPRegressor"):
            yield f"{name}, two targets", Recipe(estimator, targeted(2))
        if name in ("LinearRegression", "GaussianProcessRegressor"):
            yield f"{name}, double", Recipe(estimator, targeted(), double=True)
    for name, estimator in OF_TARGETS.items():
        yield name, Recipe(estimator, targeted(2))
    for name, estimator in TRANSFORMERS.items():
        yield name, Recipe(estimator, _square if name == "KernelCenterer" else classed())
        if name.endswith(("Scaler", "PCA", "Normalizer", "Binarizer", "KMeans")):
            yield f"{name}, double", Recipe(estimator, classed(), double=True)
    for name, estimator in IMPUTERS.items():
        yield name, Recipe(estimator, classed(missing=True))
    for name, estimator in ENCODERS.items():
        yield f"{name}, words", Recipe(estimator, lambda: (_words(), None))
        yield f"{name}, numbers", Recipe(estimator, lambda: (_integers(), None))
    yield "LabelEncoder", Recipe(("preprocessing.LabelEncoder", {}), lambda: (_words()[:, :1], None))
    yield "LabelBinarizer", Recipe(("preprocessing.LabelBinarizer", {}), lambda: (_integers()[:, :1], None))
    yield "TargetEncoder", Recipe(("preprocessing.TargetEncoder", {}), lambda: (_words(), np.arange(ROWS) % 2))
    yield "CategoricalNB", Recipe(("naive_bayes.CategoricalNB", {}), lambda: (_integers(), np.arange(ROWS) % 2))
    for name, estimator in PIPELINES.items():
        yield name, Recipe(estimator, _columns if name.startswith("Columns") else classed())
    for name, estimator in TEXTS.items():
        yield name, Recipe(estimator, _texts)
    for name, estimator in HASHERS.items():
        yield name, Recipe(estimator, lambda: (_words(), None))
    yield "Constant predictor", Recipe(CLASSIFIERS["OneVsRestClassifier"], _constantly, options={"zipmap": False})


def _boosted(package: str, listed: Mapping[str, Spelt]) -> Iterator[tuple[str, Recipe]]:
    for name, estimator in listed.items():
        if "Classifier" not in name:
            yield name, Recipe(estimator, targeted(positive=True), package)
            continue
        for count in (2, 3):
            yield f"{name}, {count} classes", Recipe(estimator, classed(count), package)
            if package == "lightgbm":
                yield f"{name}, {count} classes, no map", Recipe(estimator, classed(count), package, {"zipmap": False})
