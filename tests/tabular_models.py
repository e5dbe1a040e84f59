"""Tabular models as their users have them: estimators of scikit-learn, LightGBM and XGBoost, trained and converted.

Each is trained on a few rows when it is asked for. Converters and libraries that are not installed leave models out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

Array = np.ndarray[Any, Any]

ROWS, FEATURES = 80, 5
OPSET, ML_OPSET = 21, 3


@dataclass(frozen=True)
class Tabular:
    """A converted model.

    Attributes:
        model: The model.
        feeds: Inputs, by name.
    """

    model: onnx.ModelProto
    feeds: Mapping[str, Any]


@dataclass(frozen=True)
class Recipe:
    """How a model is made.

    Attributes:
        make: Returns a trained estimator and its rows.
        kind: Which library converts it: ``sklearn``, ``lightgbm`` or ``xgboost``.
        options: Of skl2onnx.
        double: Whether the model computes in float64.
    """

    make: Callable[[], tuple[Any, Any]]
    kind: str = "sklearn"
    options: Mapping[str, Any] = field(default_factory=dict)
    double: bool = False

    def __call__(self) -> Tabular:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator, rows = self.make()
            return {"sklearn": _from_sklearn, "lightgbm": _from_lightgbm, "xgboost": _from_xgboost}[self.kind](
                self, estimator, rows
            )


def _initial_types(rows: Any, double: bool) -> list[tuple[str, Any]]:
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType

    if isinstance(rows, dict):  # columns of several types
        return [(name, _initial_types(each, double)[0][1]) for name, each in rows.items()]
    if rows.dtype == object:
        return [("x", StringTensorType([None, *rows.shape[1:]]))]
    if rows.dtype == np.int64:
        return [("x", Int64TensorType([None, rows.shape[1]]))]
    return [("x", (DoubleTensorType if double else FloatTensorType)([None, rows.shape[1]]))]


def _feeds(rows: Any, double: bool) -> dict[str, Any]:
    named = rows if isinstance(rows, dict) else {"x": rows}
    wide = np.float64 if double else np.float32
    return {name: each.astype(wide) if each.dtype.kind == "f" else each for name, each in named.items()}


def _from_sklearn(recipe: Recipe, estimator: Any, rows: Any) -> Tabular:
    import skl2onnx

    model = skl2onnx.to_onnx(
        estimator,
        initial_types=_initial_types(rows, recipe.double),
        options={id(estimator): dict(recipe.options)} if recipe.options else None,
        target_opset={"": OPSET, "ai.onnx.ml": ML_OPSET},
    )
    return Tabular(model, _feeds(rows, recipe.double))


def _from_lightgbm(recipe: Recipe, estimator: Any, rows: Any) -> Tabular:
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    types = [("x", FloatTensorType([None, rows.shape[1]]))]
    zipmap = bool(recipe.options.get("zipmap", True))
    model = onnxmltools.convert_lightgbm(estimator, initial_types=types, target_opset=15, zipmap=zipmap)
    return Tabular(model, _feeds(rows, double=False))


def _from_xgboost(recipe: Recipe, estimator: Any, rows: Any) -> Tabular:
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    types = [("x", FloatTensorType([None, rows.shape[1]]))]
    model = onnxmltools.convert_xgboost(estimator, initial_types=types, target_opset=15)
    return Tabular(model, _feeds(rows, double=False))


# -- data --------------------------------------------------------------------------------------------------------------


def rows_of(seed: int = 0, *, positive: bool = False) -> Array:
    """Return rows of numbers."""
    x = np.random.default_rng(seed).standard_normal((ROWS, FEATURES)).astype(np.float32)
    return np.abs(x) if positive else x


def classes_of(x: Array, count: int, names: bool = False) -> Array:
    """Return a class of each row, which its numbers decide but for some noise."""
    score = x[:, 0] * 1.5 + x[:, 1] - x[:, 2] * 0.5 + np.random.default_rng(5).standard_normal(len(x)) * 0.3
    ranks = np.searchsorted(np.quantile(score, np.linspace(0, 1, count + 1)[1:-1]), score)
    return np.array(["red", "green", "blue", "grey"])[ranks] if names else ranks.astype(np.int64)


def _classified(estimator: Any, classes: int, *, names: bool = False, positive: bool = False) -> Callable[[], Any]:
    def make() -> tuple[Any, Any]:
        x = rows_of(positive=positive)
        return estimator().fit(x, classes_of(x, classes, names)), x

    return make


def _labelled(estimator: Any) -> Callable[[], Any]:
    def make() -> tuple[Any, Any]:
        x = rows_of()
        y = np.stack([x[:, 0] > 0, x[:, 1] + x[:, 2] > 0], 1).astype(np.int64)
        return estimator().fit(x, y), x

    return make


def _regressed(estimator: Any, *, targets: int = 1, positive: bool = False) -> Callable[[], Any]:
    def make() -> tuple[Any, Any]:
        x = rows_of(positive=positive)
        y = x @ np.arange(1.0, FEATURES * targets + 1).reshape(FEATURES, targets) + 0.1 * np.sin(9 * x[:, :1])
        y = np.abs(y) + 0.1 if positive else y
        return estimator().fit(x, y[:, 0] if targets == 1 else y), x

    return make


def _fitted(estimator: Any, *, positive: bool = False, missing: bool = False) -> Callable[[], Any]:
    def make() -> tuple[Any, Any]:
        x = rows_of(positive=positive)
        if missing:
            x = np.where(np.random.default_rng(3).random(x.shape) < 0.2, np.float32(np.nan), x)
        return estimator().fit(x, classes_of(np.nan_to_num(x), 2)), x

    return make


def _words(column: int = 2) -> Array:
    draw = np.random.default_rng(2)
    return np.array(["low", "middle", "high", "none"], object)[draw.integers(0, 4, (ROWS, column))]


def _numbers() -> Array:
    return np.random.default_rng(2).integers(0, 4, (ROWS, 3))


def _on(rows: Callable[[], Array], estimator: Any) -> Callable[[], Any]:
    def make() -> tuple[Any, Any]:
        x = rows()
        return estimator().fit(x), x

    return make


def _texts() -> Array:
    draw = np.random.default_rng(4)
    words = np.array(["red", "green", "blue", "Sky", "grass", "is", "the", "not"], object)
    return np.array([" ".join(words[draw.integers(0, len(words), 6)]) for _ in range(ROWS)], object)


def _text_model(estimator: Any) -> Callable[[], Any]:
    def make() -> tuple[Any, Any]:
        x = _texts()
        y = np.array(["sky" if "Sky" in each else "land" for each in x])
        return estimator().fit(x, y), x.reshape(-1, 1)

    return make


def _columns(estimator: Any, *, target: bool = True) -> Callable[[], Any]:
    def make() -> tuple[Any, Any]:
        import pandas

        x, words = rows_of(), _words(1)
        table = pandas.DataFrame({"a": x[:, 0], "b": x[:, 1], "w": words[:, 0]})
        fitted = estimator().fit(table, classes_of(x, 2)) if target else estimator().fit(table)
        return fitted, {"a": x[:, :1], "b": x[:, 1:2], "w": words}

    return make


# -- the models --------------------------------------------------------------------------------------------------------


def _sklearn_models() -> Iterator[tuple[str, Recipe]]:
    import sklearn.calibration
    import sklearn.cluster
    import sklearn.compose
    import sklearn.cross_decomposition
    import sklearn.decomposition
    import sklearn.discriminant_analysis
    import sklearn.feature_selection as selection
    import sklearn.gaussian_process
    import sklearn.impute
    import sklearn.isotonic
    import sklearn.kernel_approximation
    import sklearn.linear_model as linear
    import sklearn.mixture
    import sklearn.multiclass
    import sklearn.multioutput
    import sklearn.naive_bayes as bayes
    import sklearn.neural_network as neural
    import sklearn.pipeline
    import sklearn.preprocessing as pre
    import sklearn.random_projection
    from sklearn import ensemble, neighbors, svm, tree
    from sklearn.feature_extraction import text

    few: dict[str, Any] = {"n_estimators": 6, "random_state": 0}
    classifiers: dict[str, Any] = {
        "LogisticRegression": linear.LogisticRegression,
        "LogisticRegressionCV": lambda: linear.LogisticRegressionCV(Cs=2, cv=2),
        "RidgeClassifier": linear.RidgeClassifier,
        "RidgeClassifierCV": linear.RidgeClassifierCV,
        "SGDClassifier": lambda: linear.SGDClassifier(random_state=0),
        "SGDClassifier log": lambda: linear.SGDClassifier(loss="log_loss", random_state=0),
        "Perceptron": linear.Perceptron,
        "PassiveAggressiveClassifier": lambda: linear.PassiveAggressiveClassifier(random_state=0),
        "LinearSVC": lambda: svm.LinearSVC(random_state=0),
        "SVC linear": lambda: svm.SVC(kernel="linear"),
        "SVC rbf": svm.SVC,
        "SVC poly": lambda: svm.SVC(kernel="poly", degree=2, coef0=0.5),
        "SVC sigmoid": lambda: svm.SVC(kernel="sigmoid"),
        "SVC probabilities": lambda: svm.SVC(probability=True, random_state=0),
        "NuSVC": lambda: svm.NuSVC(nu=0.3),
        "DecisionTreeClassifier": lambda: tree.DecisionTreeClassifier(max_depth=4, random_state=0),
        "ExtraTreeClassifier": lambda: tree.ExtraTreeClassifier(max_depth=4, random_state=0),
        "RandomForestClassifier": lambda: ensemble.RandomForestClassifier(**few),
        "ExtraTreesClassifier": lambda: ensemble.ExtraTreesClassifier(**few),
        "GradientBoostingClassifier": lambda: ensemble.GradientBoostingClassifier(**few),
        "HistGradientBoostingClassifier": lambda: ensemble.HistGradientBoostingClassifier(max_iter=5),
        "AdaBoostClassifier": lambda: ensemble.AdaBoostClassifier(**few),
        "BaggingClassifier": lambda: ensemble.BaggingClassifier(**few),
        "VotingClassifier": lambda: ensemble.VotingClassifier(
            [("a", linear.LogisticRegression()), ("b", tree.DecisionTreeClassifier(max_depth=3))], voting="soft"
        ),
        "StackingClassifier": lambda: ensemble.StackingClassifier(
            [("a", linear.LogisticRegression()), ("b", tree.DecisionTreeClassifier(max_depth=3))], cv=2
        ),
        "GaussianNB": bayes.GaussianNB,
        "BernoulliNB": bayes.BernoulliNB,
        "KNeighborsClassifier": lambda: neighbors.KNeighborsClassifier(3),
        "RadiusNeighborsClassifier": lambda: neighbors.RadiusNeighborsClassifier(9.0),
        "NearestCentroid": neighbors.NearestCentroid,
        "MLPClassifier": lambda: neural.MLPClassifier((6,), max_iter=30, random_state=0),
        "LinearDiscriminantAnalysis": sklearn.discriminant_analysis.LinearDiscriminantAnalysis,
        "QuadraticDiscriminantAnalysis": sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis,
        "GaussianProcessClassifier": sklearn.gaussian_process.GaussianProcessClassifier,
        "CalibratedClassifierCV": lambda: sklearn.calibration.CalibratedClassifierCV(
            linear.LogisticRegression(), cv=2
        ),
        "OneVsRestClassifier": lambda: sklearn.multiclass.OneVsRestClassifier(linear.LogisticRegression()),
        "OneVsOneClassifier": lambda: sklearn.multiclass.OneVsOneClassifier(linear.LogisticRegression()),
        "OutputCodeClassifier": lambda: sklearn.multiclass.OutputCodeClassifier(
            linear.LogisticRegression(), random_state=0
        ),
    }  # fmt: skip
    for name, estimator in classifiers.items():
        yield name, Recipe(_classified(estimator, 2))
        yield f"{name}, 3 classes", Recipe(_classified(estimator, 3))
    for name in ("LogisticRegression", "SVC rbf", "SVC linear", "SVC probabilities", "LinearSVC", "MLPClassifier",
                 "RandomForestClassifier", "KNeighborsClassifier", "GaussianNB", "SGDClassifier log",
                 "GradientBoostingClassifier"):  # fmt: skip
        for classes in (2, 3):
            yield f"{name}, {classes} names", Recipe(_classified(classifiers[name], classes, names=True))
            yield (
                f"{name}, {classes} names, no map",
                Recipe(_classified(classifiers[name], classes, names=True), options={"zipmap": False}),
            )
    for name in ("LogisticRegression", "SVC probabilities", "RandomForestClassifier"):
        made = _classified(classifiers[name], 3)
        yield f"{name}, columns", Recipe(made, options={"zipmap": "columns"})
        yield f"{name}, raw scores", Recipe(made, options={"zipmap": False, "raw_scores": True})
        yield f"{name}, double", Recipe(made, options={"zipmap": False}, double=True)
    for name in ("MultinomialNB", "ComplementNB", "CategoricalNB"):
        if name == "CategoricalNB":
            yield name, Recipe(lambda: (bayes.CategoricalNB().fit(_numbers(), np.arange(ROWS) % 2), _numbers()))
        else:
            yield name, Recipe(_classified(getattr(bayes, name), 3, positive=True))
    for name, estimator in {
        "MultiOutputClassifier": lambda: sklearn.multioutput.MultiOutputClassifier(linear.LogisticRegression()),
        "ClassifierChain": lambda: sklearn.multioutput.ClassifierChain(linear.LogisticRegression()),
        "RandomForestClassifier": lambda: ensemble.RandomForestClassifier(**few),
        "KNeighborsClassifier": lambda: neighbors.KNeighborsClassifier(3),
        "MLPClassifier": lambda: neural.MLPClassifier((5,), max_iter=20),
        "OneVsRestClassifier": lambda: sklearn.multiclass.OneVsRestClassifier(linear.LogisticRegression()),
    }.items():
        yield f"{name}, two labels", Recipe(_labelled(estimator), options={"zipmap": False})

    regressors: dict[str, Any] = {
        "LinearRegression": linear.LinearRegression,
        "Ridge": linear.Ridge,
        "RidgeCV": linear.RidgeCV,
        "Lasso": linear.Lasso,
        "LassoCV": lambda: linear.LassoCV(cv=2),
        "LassoLars": linear.LassoLars,
        "ElasticNet": linear.ElasticNet,
        "ElasticNetCV": lambda: linear.ElasticNetCV(cv=2),
        "Lars": linear.Lars,
        "BayesianRidge": linear.BayesianRidge,
        "ARDRegression": linear.ARDRegression,
        "HuberRegressor": linear.HuberRegressor,
        "TheilSenRegressor": lambda: linear.TheilSenRegressor(random_state=0, max_subpopulation=100),
        "RANSACRegressor": lambda: linear.RANSACRegressor(random_state=0),
        "OrthogonalMatchingPursuit": linear.OrthogonalMatchingPursuit,
        "SGDRegressor": lambda: linear.SGDRegressor(random_state=0),
        "QuantileRegressor": linear.QuantileRegressor,
        "LinearSVR": svm.LinearSVR,
        "SVR linear": lambda: svm.SVR(kernel="linear"),
        "SVR rbf": svm.SVR,
        "SVR poly": lambda: svm.SVR(kernel="poly"),
        "NuSVR": svm.NuSVR,
        "DecisionTreeRegressor": lambda: tree.DecisionTreeRegressor(max_depth=4),
        "RandomForestRegressor": lambda: ensemble.RandomForestRegressor(**few),
        "ExtraTreesRegressor": lambda: ensemble.ExtraTreesRegressor(**few),
        "GradientBoostingRegressor": lambda: ensemble.GradientBoostingRegressor(**few),
        "HistGradientBoostingRegressor": lambda: ensemble.HistGradientBoostingRegressor(max_iter=5),
        "AdaBoostRegressor": lambda: ensemble.AdaBoostRegressor(**few),
        "BaggingRegressor": lambda: ensemble.BaggingRegressor(**few),
        "VotingRegressor": lambda: ensemble.VotingRegressor([("a", linear.Ridge()), ("b", svm.SVR())]),
        "StackingRegressor": lambda: ensemble.StackingRegressor([("a", linear.Ridge()), ("b", svm.SVR())], cv=2),
        "KNeighborsRegressor": lambda: neighbors.KNeighborsRegressor(3),
        "RadiusNeighborsRegressor": lambda: neighbors.RadiusNeighborsRegressor(9.0),
        "MLPRegressor": lambda: neural.MLPRegressor((6,), max_iter=30, random_state=0),
        "GaussianProcessRegressor": sklearn.gaussian_process.GaussianProcessRegressor,
    }
    for name, estimator in regressors.items():
        yield name, Recipe(_regressed(estimator))
    for name in ("TweedieRegressor", "PoissonRegressor", "GammaRegressor"):
        yield name, Recipe(_regressed(getattr(linear, name), positive=True))
    for name in ("LinearRegression", "Ridge", "RandomForestRegressor", "KNeighborsRegressor", "MLPRegressor"):
        yield f"{name}, two targets", Recipe(_regressed(regressors[name], targets=2))
    for name in ("LinearRegression", "SVR rbf", "RandomForestRegressor", "GaussianProcessRegressor"):
        yield f"{name}, double", Recipe(_regressed(regressors[name]), double=True)
    for name in ("MultiTaskLasso", "MultiTaskElasticNet"):
        yield name, Recipe(_regressed(getattr(linear, name), targets=2))
    yield "PLSRegression", Recipe(_regressed(sklearn.cross_decomposition.PLSRegression))
    yield (
        "MultiOutputRegressor",
        Recipe(_regressed(lambda: sklearn.multioutput.MultiOutputRegressor(linear.Ridge()), targets=2)),
    )

    for name, estimator in {
        "StandardScaler": pre.StandardScaler, "MinMaxScaler": pre.MinMaxScaler, "MaxAbsScaler": pre.MaxAbsScaler,
        "RobustScaler": pre.RobustScaler, "Normalizer": pre.Normalizer, "Normalizer l1": lambda: pre.Normalizer("l1"),
        "Normalizer max": lambda: pre.Normalizer("max"), "Binarizer": lambda: pre.Binarizer(threshold=0.2),
        "KBinsDiscretizer": lambda: pre.KBinsDiscretizer(3, encode="onehot-dense"),
        "KBinsDiscretizer ordinal": lambda: pre.KBinsDiscretizer(3, encode="ordinal"),
        "PolynomialFeatures": pre.PolynomialFeatures, "PowerTransformer": pre.PowerTransformer,
        "QuantileTransformer": lambda: pre.QuantileTransformer(n_quantiles=10),
        "SplineTransformer": pre.SplineTransformer, "PCA": lambda: sklearn.decomposition.PCA(2),
        "IncrementalPCA": lambda: sklearn.decomposition.IncrementalPCA(2),
        "TruncatedSVD": lambda: sklearn.decomposition.TruncatedSVD(2),
        "KernelPCA": lambda: sklearn.decomposition.KernelPCA(2, kernel="rbf"),
        "FastICA": lambda: sklearn.decomposition.FastICA(2, random_state=0),
        "FactorAnalysis": lambda: sklearn.decomposition.FactorAnalysis(2),
        "SelectKBest": lambda: selection.SelectKBest(k=2), "VarianceThreshold": selection.VarianceThreshold,
        "SelectPercentile": lambda: selection.SelectPercentile(percentile=60),
        "SelectFromModel": lambda: selection.SelectFromModel(linear.LogisticRegression()),
        "RFE": lambda: selection.RFE(linear.LogisticRegression(), n_features_to_select=2),
        "GaussianRandomProjection": lambda: sklearn.random_projection.GaussianRandomProjection(3, random_state=0),
        "RBFSampler": lambda: sklearn.kernel_approximation.RBFSampler(n_components=6, random_state=0),
        "KMeans": lambda: sklearn.cluster.KMeans(3, random_state=0, n_init=1),
        "MiniBatchKMeans": lambda: sklearn.cluster.MiniBatchKMeans(3, random_state=0, n_init=1),
        "GaussianMixture": lambda: sklearn.mixture.GaussianMixture(2, random_state=0),
        "BayesianGaussianMixture": lambda: sklearn.mixture.BayesianGaussianMixture(n_components=2, random_state=0),
        "IsolationForest": lambda: ensemble.IsolationForest(**few),
        "LocalOutlierFactor": lambda: neighbors.LocalOutlierFactor(novelty=True),
        "OneClassSVM": svm.OneClassSVM, "KernelCenterer": None,
        "SGDOneClassSVM": lambda: linear.SGDOneClassSVM(random_state=0),
        "RandomTreesEmbedding": lambda: ensemble.RandomTreesEmbedding(**few),
        "FunctionTransformer": pre.FunctionTransformer,
        "KNeighborsTransformer": lambda: neighbors.KNeighborsTransformer(n_neighbors=2),
    }.items():  # fmt: skip
        if estimator is not None:
            yield name, Recipe(_fitted(estimator))
            if name.endswith(("Scaler", "PCA", "Normalizer", "Binarizer", "OneClassSVM", "KMeans")):
                yield f"{name}, double", Recipe(_fitted(estimator), double=True)
    for name, estimator in {
        "SimpleImputer": sklearn.impute.SimpleImputer,
        "SimpleImputer median": lambda: sklearn.impute.SimpleImputer(strategy="median"),
        "KNNImputer": lambda: sklearn.impute.KNNImputer(n_neighbors=2),
        "HistGradientBoosting, missing": lambda: ensemble.HistGradientBoostingClassifier(max_iter=5),
        "Imputed": lambda: sklearn.pipeline.make_pipeline(
            sklearn.impute.SimpleImputer(), pre.StandardScaler(), linear.LogisticRegression()
        ),
    }.items():
        yield name, Recipe(_fitted(estimator, missing=True))
    for kind, rows in (("words", _words), ("numbers", _numbers)):
        yield f"OneHotEncoder, {kind}", Recipe(_on(rows, lambda: pre.OneHotEncoder(sparse_output=False)))
        yield f"OneHotEncoder, {kind}, ignoring", Recipe(_on(rows, lambda: pre.OneHotEncoder(handle_unknown="ignore")))
        yield f"OrdinalEncoder, {kind}", Recipe(_on(rows, pre.OrdinalEncoder))
    yield "SimpleImputer, words", Recipe(_on(_words, lambda: sklearn.impute.SimpleImputer(strategy="most_frequent")))
    yield "LabelEncoder", Recipe(lambda: (pre.LabelEncoder().fit(_words(1)[:, 0]), _words(1)))
    yield "LabelBinarizer", Recipe(lambda: (pre.LabelBinarizer().fit(_numbers()[:, 0]), _numbers()[:, :1]))
    yield "TargetEncoder", Recipe(lambda: (pre.TargetEncoder().fit(_words(), np.arange(ROWS) % 2), _words()))
    yield "FeatureHasher", Recipe(
        lambda: (__import__("sklearn.feature_extraction").feature_extraction.FeatureHasher(8, input_type="string"),
                 _words(1))
    )  # fmt: skip

    def mixed(last: Any) -> Any:
        return sklearn.pipeline.make_pipeline(
            sklearn.compose.ColumnTransformer(
                [("numbers", pre.StandardScaler(), ["a", "b"]),
                 ("words", pre.OneHotEncoder(handle_unknown="ignore"), ["w"])]
            ), last)  # fmt: skip

    yield "Columns, logistic", Recipe(_columns(lambda: mixed(linear.LogisticRegression())))
    yield "Columns, forest", Recipe(_columns(lambda: mixed(ensemble.RandomForestClassifier(**few))))
    yield "Columns, SVC", Recipe(_columns(lambda: mixed(svm.SVC(probability=True))))
    yield "Columns alone", Recipe(_columns(lambda: mixed(pre.MaxAbsScaler()), target=False))
    for name, estimator in {
        "Pipeline, PCA": lambda: sklearn.pipeline.make_pipeline(
            pre.StandardScaler(), sklearn.decomposition.PCA(3), linear.LogisticRegression()
        ),
        "Pipeline, SVC": lambda: sklearn.pipeline.make_pipeline(pre.StandardScaler(), svm.SVC(probability=True)),
        "Union": lambda: sklearn.pipeline.make_pipeline(
            sklearn.pipeline.make_union(pre.StandardScaler(), sklearn.decomposition.PCA(2)), linear.LogisticRegression()
        ),
        "GridSearchCV": lambda: __import__("sklearn.model_selection").model_selection.GridSearchCV(
            linear.LogisticRegression(), {"C": [0.5, 1]}, cv=2
        ),
    }.items():
        yield name, Recipe(_classified(estimator, 2))
    yield "Text, TF-IDF", Recipe(_text_model(text.TfidfVectorizer))
    yield "Text, counts", Recipe(_text_model(lambda: text.CountVectorizer(lowercase=True, ngram_range=(1, 2))))
    yield (
        "Text, classified",
        Recipe(
            _text_model(lambda: sklearn.pipeline.make_pipeline(text.TfidfVectorizer(), linear.LogisticRegression()))
        ),
    )
    yield (
        "Text, characters",
        Recipe(_text_model(lambda: text.CountVectorizer(analyzer="char", ngram_range=(1, 2), lowercase=False))),
    )


def _lightgbm_models() -> Iterator[tuple[str, Recipe]]:
    import lightgbm

    small: dict[str, Any] = {"n_estimators": 5, "verbose": -1, "min_child_samples": 3}
    for classes in (2, 3):
        made = _classified(lambda: lightgbm.LGBMClassifier(**small), classes)
        yield f"LGBMClassifier, {classes} classes", Recipe(made, "lightgbm")
        yield f"LGBMClassifier, {classes} classes, no map", Recipe(made, "lightgbm", {"zipmap": False})
    yield "LGBMRegressor", Recipe(_regressed(lambda: lightgbm.LGBMRegressor(**small)), "lightgbm")
    yield (
        "LGBMRegressor, Poisson",
        Recipe(_regressed(lambda: lightgbm.LGBMRegressor(objective="poisson", **small), positive=True), "lightgbm"),
    )
    yield (
        "LGBMRegressor, dart",
        Recipe(_regressed(lambda: lightgbm.LGBMRegressor(boosting_type="dart", **small)), "lightgbm"),
    )


def _xgboost_models() -> Iterator[tuple[str, Recipe]]:
    import xgboost

    for classes in (2, 3):
        made = _classified(lambda: xgboost.XGBClassifier(n_estimators=5), classes)
        yield f"XGBClassifier, {classes} classes", Recipe(made, "xgboost")
    yield "XGBRegressor", Recipe(_regressed(lambda: xgboost.XGBRegressor(n_estimators=5)), "xgboost")
    yield "XGBRFRegressor", Recipe(_regressed(lambda: xgboost.XGBRFRegressor(n_estimators=5)), "xgboost")
    yield "XGBRFClassifier", Recipe(_classified(lambda: xgboost.XGBRFClassifier(n_estimators=5), 2), "xgboost")
    yield (
        "XGBRegressor, Poisson",
        Recipe(
            _regressed(lambda: xgboost.XGBRegressor(n_estimators=5, objective="count:poisson"), positive=True),
            "xgboost",
        ),
    )


def recipes() -> dict[str, Recipe]:
    """Return how each model is made that the installed libraries make."""
    found: dict[str, Recipe] = {}
    for models in (_sklearn_models, _lightgbm_models, _xgboost_models):
        try:
            found.update(models())
        except ImportError:
            continue
    return found
