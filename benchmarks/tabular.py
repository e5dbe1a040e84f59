"""Classical models of scikit-learn, but forests, beside ONNX Runtime, in turn, one thread each."""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import measure
import numpy as np

import opbuild
from opbuild.platform.processor import processor_name

FEATURES, SAMPLES = 20, 4000
TOLERANCE = 1e-5
NAMES = np.array(["red", "green", "blue"])
PLAIN = {"zipmap": False}


def main() -> int:
    """Measure, print a table, write the results; return 1 if an output was wrong."""
    parser = measure.parser_of_turns(__doc__ or "", 7, 0.05)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS, metavar="MODEL")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    title = f"Classical models, {processor_name()}, one thread: microseconds a call"
    columns = ("model", "rows", "kernels", "opbuild", "onnxruntime", "ratio", "error")
    with tempfile.TemporaryDirectory() as cache:

        def of(name: str) -> Iterator[tuple[list[object], dict[str, Any]]]:
            model, rows = MODELS[name]()
            for count in arguments.rows:
                row = measured(model, rows[:count], Path(cache), arguments.rounds, arguments.seconds)
                yield [name, count, *shown(row)], {"model": name, "rows": count, **row}

        found = measure.tabulate(title, columns, ((name, partial(of, name)) for name in arguments.models))
    measure.write_results(arguments.json, "tabular", found)
    return int(measure.exceeds(found, TOLERANCE))


def shown(row: Mapping[str, Any]) -> list[str]:
    """Return the cells of a measurement in a table."""
    times = [f"{row[name]:.1f}" for name in ("opbuild", "onnxruntime")]
    return [str(row["kernels"]), *times, f"{row['opbuild'] / row['onnxruntime']:.2f}", f"{row['error']:.1e}"]


def measured(model: bytes, rows: Any, cache: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Measure calls with some rows."""
    network = opbuild.compile(model, num_threads=1, cache_path=cache)
    session = measure.ort_session(model, 1)
    name = session.get_inputs()[0].name
    calls = {"opbuild": lambda: network(rows), "onnxruntime": lambda: session.run(None, {name: rows})}
    row: dict[str, Any] = {key: 1e6 * value for key, value in measure.alternate(calls, rounds, seconds).items()}
    error = measure.relative_error(as_numbers(calls["opbuild"]()), as_numbers(calls["onnxruntime"]()))
    return {**row, "kernels": sum(runner.step_count for runner in network.runners), "error": error}


def as_numbers(outputs: Any) -> Any:
    """Return the last output of a model as an array."""
    last = outputs[-1] if isinstance(outputs, (tuple, list)) else outputs
    return np.array([list(each.values()) for each in last]) if isinstance(last, list) else np.asarray(last)


def made(
    estimator: Callable[[], Any], *, of: str = "numbers", names: bool = False, classes: int = 3, **options: Any
) -> Callable[[], tuple[bytes, Any]]:
    """Return a function that trains an estimator and returns its ONNX model and rows for it."""

    def make() -> tuple[bytes, Any]:
        import skl2onnx

        rows, ranks = ROWS[of](), np.digitize(numbers()[:, :3].sum(1), [-0.5, 0.5][: classes - 1])
        fitted = estimator().fit(rows, NAMES[ranks] if names else ranks)
        given = {id(fitted): options} if options else None
        return skl2onnx.to_onnx(fitted, rows[:1], options=given).SerializeToString(), rows

    return make


def numbers() -> Any:
    """Return rows of numbers."""
    return np.random.default_rng(0).standard_normal((SAMPLES, FEATURES)).astype(np.float32)


def missing() -> Any:
    """Return rows of numbers of which some are missing."""
    return np.where(np.random.default_rng(1).random((SAMPLES, FEATURES)) < 0.1, np.float32(np.nan), numbers())


def categories() -> Any:
    """Return rows of integers."""
    return np.random.default_rng(2).integers(0, 6, (SAMPLES, 5))


ROWS = {"numbers": numbers, "missing": missing, "categories": categories}


def estimator(path: str, **options: Any) -> Callable[[], Any]:
    """Return a maker of an estimator of scikit-learn."""

    def make() -> Any:
        from importlib import import_module

        module, _, name = path.rpartition(".")
        return getattr(import_module(f"sklearn.{module}"), name)(**options)

    return make


def piped(*steps: Callable[[], Any]) -> Callable[[], Any]:
    """Return a maker of a pipeline."""

    def make() -> Any:
        from sklearn.pipeline import make_pipeline

        return make_pipeline(*(step() for step in steps))

    return make


SCALER, IMPUTER = estimator("preprocessing.StandardScaler"), estimator("impute.SimpleImputer")
LOGISTIC = estimator("linear_model.LogisticRegression")
PROBABLE = estimator("svm.SVC", probability=True, max_iter=200)
FOREST = estimator("ensemble.RandomForestClassifier", n_estimators=10, random_state=0)

MODELS: dict[str, Callable[[], tuple[bytes, Any]]] = {
    "StandardScaler": made(SCALER),
    "MinMaxScaler": made(estimator("preprocessing.MinMaxScaler")),
    "Normalizer": made(estimator("preprocessing.Normalizer")),
    "Binarizer": made(estimator("preprocessing.Binarizer")),
    "SimpleImputer": made(IMPUTER, of="missing"),
    "OneHotEncoder": made(estimator("preprocessing.OneHotEncoder", sparse_output=False), of="categories"),
    "OneHotEncoder, ignoring": made(
        estimator("preprocessing.OneHotEncoder", handle_unknown="ignore", sparse_output=False), of="categories"
    ),
    "PCA": made(estimator("decomposition.PCA", n_components=5)),
    "LinearRegression": made(estimator("linear_model.LinearRegression")),
    "SVR": made(estimator("svm.SVR", max_iter=200)),
    "LogisticRegression, 2 classes": made(LOGISTIC, classes=2, **PLAIN),
    "LogisticRegression": made(LOGISTIC, **PLAIN),
    "LogisticRegression, names": made(LOGISTIC, names=True, **PLAIN),
    "LogisticRegression, dictionaries": made(LOGISTIC),
    "LogisticRegression, names, dictionaries": made(LOGISTIC, names=True),
    "Scaler, LogisticRegression": made(piped(SCALER, LOGISTIC), **PLAIN),
    "Imputer, scaler, LogisticRegression": made(piped(IMPUTER, SCALER, LOGISTIC), of="missing", **PLAIN),
    "LinearSVC": made(estimator("svm.LinearSVC")),
    "GaussianNB": made(estimator("naive_bayes.GaussianNB"), **PLAIN),
    "MLPClassifier": made(estimator("neural_network.MLPClassifier", max_iter=5), **PLAIN),
    "SVC": made(estimator("svm.SVC", max_iter=200)),
    "SVC, probabilities, 2 classes": made(PROBABLE, classes=2, **PLAIN),
    "SVC, probabilities": made(PROBABLE, **PLAIN),
    "Forest of 10": made(FOREST, **PLAIN),
    "Forest of 10, names, dictionaries": made(FOREST, names=True),
}


if __name__ == "__main__":
    sys.exit(main())
