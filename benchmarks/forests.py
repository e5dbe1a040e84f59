"""Forests of scikit-learn, LightGBM and XGBoost beside ONNX Runtime, lleaves and tl2cgen, in turn.

Each call gets other rows than the one before: of one row that is given again and again, branch predictors learn the
path. lleaves compiles LightGBM's models, tl2cgen writes C, whose compilation takes minutes for random forests and for
more than ``--compiled`` trees, so that these are left out.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import measure
import numpy as np

import opbuild
from opbuild.platform.processor import processor_name

TARGET = 1.0
TOLERANCE = 1e-6
FEATURES, SAMPLES, CLASSES = 30, 4000, 3
OTHERS = ("onnxruntime", "lleaves", "tl2cgen")
FORESTS = ("random forest", "boosting", "LightGBM", "XGBoost")
TASKS = ("classifier", "regressor")


def main() -> int:
    """Measure, print a table, write the results; return 1 if an output was wrong."""
    parser = measure.parser_of_turns(__doc__ or "", 5, 0.1)
    parser.add_argument("--forests", nargs="*", default=list(FORESTS), choices=FORESTS)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument("--trees", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--compiled", type=int, default=100, help="trees that tl2cgen compiles at most")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    title = f"Forests, {processor_name()}: microseconds a call"
    columns = ("forest", "trees", "rows", "threads", "opbuild", *OTHERS, "to ONNX Runtime", "to the best", "error")
    with tempfile.TemporaryDirectory() as folder:

        def of(forest: str, task: str, trees: int) -> Iterator[tuple[list[object], dict[str, Any]]]:
            made = Forest(forest, task, trees, Path(folder), arguments.compiled)
            for count, threads in product(arguments.rows, arguments.threads):
                row = made.measured(count, threads, arguments.rounds, arguments.seconds)
                yield [f"{forest} {task}", trees, count, threads, *shown(row)], row

        cases = product(arguments.forests, arguments.tasks, arguments.trees)
        found = measure.tabulate(title, columns, ((f"{f} {t}, {n} trees", partial(of, f, t, n)) for f, t, n in cases))
    measure.write_results(arguments.json, "forests", found)
    return int(measure.exceeds(found, TOLERANCE))


def shown(row: Mapping[str, Any]) -> list[str]:
    """Return the cells of a measurement in a table."""
    times = [f"{row[name]:.1f}" if name in row else "" for name in ("opbuild", *OTHERS)]
    ratios = [f"{row[name]:.2f}" for name in ("to_onnxruntime", "to_best")]
    error = f"{row['error']:.1e}"
    return [*times, *ratios, error if row["error"] <= TOLERANCE else f"[red]{error}[/]"]


class Forest:
    """A model and its data, in all runtimes that take it."""

    def __init__(self, forest: str, task: str, trees: int, folder: Path, compiled: int) -> None:
        random = np.random.default_rng(0)
        self.x = random.standard_normal((SAMPLES, FEATURES)).astype(np.float32)
        score = self.x[:, :6] @ random.standard_normal(6) + np.sin(3 * self.x[:, 6]) * self.x[:, 7]
        self.forest, self.task, self.trees, self.folder = forest, task, trees, folder
        classes = np.digitize(score, np.quantile(score, np.arange(1, CLASSES) / CLASSES))
        self.model = trained(forest, task, trees, self.x, classes if task == "classifier" else score)
        self.path = folder / f"{forest} {task} {trees}.onnx"
        self.path.write_bytes(to_onnx(forest, self.model).SerializeToString())
        self.is_compiled = forest != "random forest" and trees <= compiled

    def measured(self, count: int, threads: int, rounds: int, seconds: float) -> dict[str, Any]:
        """Measure calls of so many rows."""
        batches = [self.x[start : start + count] for start in range(0, SAMPLES - count + 1, count)]
        calls = {name: call for name, call in self._calls(threads).items() if call is not None}
        found = as_scores(calls["opbuild"](batches[0])), as_scores(calls["onnxruntime"](batches[0]))
        turning = {name: self._turning(call, batches) for name, call in calls.items()}
        medians = measure.alternate(turning, rounds, seconds)
        row: dict[str, Any] = {name: 1e6 * value for name, value in medians.items()}
        others = [value for name, value in row.items() if name != "opbuild"]
        return {
            **row, "forest": f"{self.forest} {self.task}", "trees": self.trees, "rows": count, "threads": threads,
            "to_onnxruntime": row["opbuild"] / row["onnxruntime"], "to_best": row["opbuild"] / min(others),
            "error": measure.relative_error(*found),
        }  # fmt: skip

    @staticmethod
    def _turning(call: Callable[[Any], Any], batches: list[Any]) -> Callable[[], Any]:
        others = itertools.cycle(batches)
        return lambda: call(next(others))

    def _calls(self, threads: int) -> dict[str, Callable[[Any], Any] | None]:
        network = opbuild.compile(self.path, num_threads=threads, cache_path=self.folder / "cache")
        session = measure.ort_session(self.path.read_bytes(), threads)
        name = session.get_inputs()[0].name
        return {
            "opbuild": network,
            "onnxruntime": lambda x: session.run(None, {name: x}),
            "lleaves": self._lleaves(threads),
            "tl2cgen": self._tl2cgen(threads) if self.is_compiled else None,
        }

    def _lleaves(self, threads: int) -> Callable[[Any], Any] | None:
        if self.forest != "LightGBM":
            return None
        import lleaves

        path = self.folder / f"{self.task} {self.trees}.txt"
        self.model.booster_.save_model(path)
        compiled = lleaves.Model(model_file=str(path))
        try:
            compiled.compile(cache=str(path.with_suffix(".lleaves")))
        except AttributeError:  # it calls what llvmlite has no more since 0.45
            return None
        return lambda x: compiled.predict(x, n_jobs=threads)

    def _tl2cgen(self, threads: int) -> Callable[[Any], Any]:
        import tl2cgen
        import treelite

        library = self.folder / f"{self.forest} {self.task} {self.trees}.so".replace(" ", "_")
        if not library.exists():
            of = treelite.frontend
            read = {"LightGBM": lambda: of.from_lightgbm(self.model.booster_),
                    "XGBoost": lambda: of.from_xgboost(self.model.get_booster())}  # fmt: skip
            model = read.get(self.forest, lambda: treelite.sklearn.import_model(self.model))()
            tl2cgen.export_lib(model, toolchain="gcc", libpath=library, params={"parallel_comp": 2}, verbose=False)
        predictor = tl2cgen.Predictor(library, nthread=threads, verbose=False)
        return lambda x: predictor.predict(tl2cgen.DMatrix(x, dtype="float32"))


def trained(forest: str, task: str, trees: int, x: Any, y: Any) -> Any:
    """Return a model; boosting of classes has as many trees for each."""
    import lightgbm
    import xgboost
    from sklearn import ensemble

    each = max(1, trees // CLASSES) if task == "classifier" else trees
    kinds: dict[tuple[str, str], Callable[[], Any]] = {
        ("random forest", "classifier"): lambda: ensemble.RandomForestClassifier(trees, random_state=0),
        ("random forest", "regressor"): lambda: ensemble.RandomForestRegressor(trees, random_state=0),
        ("boosting", "classifier"): lambda: ensemble.GradientBoostingClassifier(n_estimators=each, random_state=0),
        ("boosting", "regressor"): lambda: ensemble.GradientBoostingRegressor(n_estimators=each, random_state=0),
        ("LightGBM", "classifier"): lambda: lightgbm.LGBMClassifier(n_estimators=each, verbose=-1, n_jobs=1),
        ("LightGBM", "regressor"): lambda: lightgbm.LGBMRegressor(n_estimators=each, verbose=-1, n_jobs=1),
        ("XGBoost", "classifier"): lambda: xgboost.XGBClassifier(n_estimators=each, n_jobs=1),
        ("XGBoost", "regressor"): lambda: xgboost.XGBRegressor(n_estimators=each, n_jobs=1),
    }
    return kinds[forest, task]().fit(x, y)


def to_onnx(forest: str, model: Any) -> Any:
    """Return the ONNX model of a forest."""
    if forest in ("LightGBM", "XGBoost"):
        import onnxmltools
        from onnxmltools.convert.common.data_types import FloatTensorType

        types = [("x", FloatTensorType([None, FEATURES]))]
        if forest == "XGBoost":
            return onnxmltools.convert_xgboost(model, initial_types=types, target_opset=15)
        return onnxmltools.convert_lightgbm(model, initial_types=types, zipmap=False, target_opset=15)
    import skl2onnx

    is_class = hasattr(model, "predict_proba")
    options = {id(model): {"zipmap": False}} if is_class else None
    return skl2onnx.to_onnx(model, np.zeros((1, FEATURES), np.float32), options=options)


def as_scores(outputs: Any) -> Any:
    """Return the scores among the outputs of a model."""
    return np.asarray(outputs[-1] if isinstance(outputs, (tuple, list)) else outputs).squeeze()


if __name__ == "__main__":
    sys.exit(main())
