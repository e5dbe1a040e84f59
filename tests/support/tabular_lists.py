"""The estimators of ``tabular_models``, spelt out: a class of scikit-learn, or ``package:class``, and its arguments."""

from __future__ import annotations

from typing import Any

Spelt = tuple[str, dict[str, Any]]

FEW: dict[str, Any] = {"n_estimators": 6, "random_state": 0}
SEED: dict[str, Any] = {"random_state": 0}
LOGISTIC: Spelt = ("linear_model.LogisticRegression", {})
RIDGE: Spelt = ("linear_model.Ridge", {})
TREE: Spelt = ("tree.DecisionTreeClassifier", {"max_depth": 3, "random_state": 0})
PROBABLE: Spelt = ("svm.SVC", {"probability": True, "random_state": 0})
NEAREST: Spelt = ("neighbors.KNeighborsClassifier", {"n_neighbors": 3})

CLASSIFIERS: dict[str, Spelt] = {
    "LogisticRegression": LOGISTIC,
    "LogisticRegressionCV": ("linear_model.LogisticRegressionCV", {"Cs": 2, "cv": 2}),
    "RidgeClassifier": ("linear_model.RidgeClassifier", {}),
    "RidgeClassifierCV": ("linear_model.RidgeClassifierCV", {}),
    "SGDClassifier": ("linear_model.SGDClassifier", SEED),
    "SGDClassifier log": ("linear_model.SGDClassifier", {"loss": "log_loss", **SEED}),
    "Perceptron": ("linear_model.Perceptron", SEED),
    "PassiveAggressiveClassifier": ("linear_model.PassiveAggressiveClassifier", SEED),
    "LinearSVC": ("svm.LinearSVC", SEED),
    "SVC linear": ("svm.SVC", {"kernel": "linear"}),
    "SVC rbf": ("svm.SVC", {}),
    "SVC poly": ("svm.SVC", {"kernel": "poly", "degree": 2, "coef0": 0.5}),
    "SVC sigmoid": ("svm.SVC", {"kernel": "sigmoid"}),
    "SVC probabilities": PROBABLE,
    "SVC linear probabilities": ("svm.SVC", {"kernel": "linear", **PROBABLE[1]}),
    "NuSVC": ("svm.NuSVC", {"nu": 0.3}),
    "DecisionTreeClassifier": ("tree.DecisionTreeClassifier", {"max_depth": 4, **SEED}),
    "ExtraTreeClassifier": ("tree.ExtraTreeClassifier", {"max_depth": 4, **SEED}),
    "RandomForestClassifier": ("ensemble.RandomForestClassifier", FEW),
    "ExtraTreesClassifier": ("ensemble.ExtraTreesClassifier", FEW),
    "GradientBoostingClassifier": ("ensemble.GradientBoostingClassifier", FEW),
    "AdaBoostClassifier": ("ensemble.AdaBoostClassifier", FEW),
    "BaggingClassifier": ("ensemble.BaggingClassifier", FEW),
    "VotingClassifier": (
        "ensemble.VotingClassifier",
        {"estimators": [("a", LOGISTIC), ("b", TREE)], "voting": "soft", "flatten_transform": False},
    ),
    "StackingClassifier": ("ensemble.StackingClassifier", {"estimators": [("a", LOGISTIC), ("b", TREE)], "cv": 2}),
    "GaussianNB": ("naive_bayes.GaussianNB", {}),
    "BernoulliNB": ("naive_bayes.BernoulliNB", {}),
    "KNeighborsClassifier": NEAREST,
    "RadiusNeighborsClassifier": ("neighbors.RadiusNeighborsClassifier", {"radius": 9.0}),
    "MLPClassifier": ("neural_network.MLPClassifier", {"hidden_layer_sizes": (6,), "max_iter": 30, **SEED}),
    "LinearDiscriminantAnalysis": ("discriminant_analysis.LinearDiscriminantAnalysis", {}),
    "QuadraticDiscriminantAnalysis": ("discriminant_analysis.QuadraticDiscriminantAnalysis", {}),
    "CalibratedClassifierCV": ("calibration.CalibratedClassifierCV", {"estimator": LOGISTIC, "cv": 2}),
    "OneVsRestClassifier": ("multiclass.OneVsRestClassifier", {"estimator": LOGISTIC}),
    "OneVsOneClassifier": ("multiclass.OneVsOneClassifier", {"estimator": LOGISTIC}),
    "TunedThresholdClassifierCV": ("model_selection.TunedThresholdClassifierCV", {"estimator": LOGISTIC, "cv": 2}),
}

OF_TWO = ("TunedThresholdClassifierCV",)
"""Those of two classes only."""

NAMED = ("LogisticRegression", "SVC rbf", "SVC linear", "SVC probabilities", "MLPClassifier", "RandomForestClassifier",
         "KNeighborsClassifier", "GaussianNB", "SGDClassifier log", "GradientBoostingClassifier")  # fmt: skip
"""Those that are also told apart by names, with and without dictionaries."""

POSITIVE: dict[str, Spelt] = {
    "MultinomialNB": ("naive_bayes.MultinomialNB", {}),
    "ComplementNB": ("naive_bayes.ComplementNB", {}),
}
"""Those of numbers that are not negative."""

LABELLERS: dict[str, Spelt] = {
    "MultiOutputClassifier": ("multioutput.MultiOutputClassifier", {"estimator": LOGISTIC}),
    "RandomForestClassifier": ("ensemble.RandomForestClassifier", FEW),
    "KNeighborsClassifier": NEAREST,
    "MLPClassifier": ("neural_network.MLPClassifier", {"hidden_layer_sizes": (5,), "max_iter": 20, **SEED}),
    "OneVsRestClassifier": ("multiclass.OneVsRestClassifier", {"estimator": LOGISTIC}),
}

BASES: list[Any] = [("a", RIDGE), ("b", ("svm.SVR", {}))]

REGRESSORS: dict[str, Spelt] = {
    **{name: (f"linear_model.{name}", {}) for name in (
        "LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoLars", "ElasticNet", "Lars", "BayesianRidge",
        "ARDRegression", "HuberRegressor", "OrthogonalMatchingPursuit", "QuantileRegressor", "TweedieRegressor",
        "PoissonRegressor", "GammaRegressor", "LassoLarsIC", "PassiveAggressiveRegressor",
    )},
    **{name: (f"linear_model.{name}", {"cv": 2}) for name in ("LarsCV", "LassoLarsCV", "OrthogonalMatchingPursuitCV")},
    **{name: (f"linear_model.{name}", SEED) for name in ("TheilSenRegressor", "RANSACRegressor", "SGDRegressor")},
    "LassoCV": ("linear_model.LassoCV", {"cv": 2}),
    "ElasticNetCV": ("linear_model.ElasticNetCV", {"cv": 2}),
    "LinearSVR": ("svm.LinearSVR", SEED),
    "SVR linear": ("svm.SVR", {"kernel": "linear"}),
    "SVR rbf": ("svm.SVR", {}),
    "SVR poly": ("svm.SVR", {"kernel": "poly"}),
    "SVR sigmoid": ("svm.SVR", {"kernel": "sigmoid"}),
    "NuSVR": ("svm.NuSVR", {}),
    "DecisionTreeRegressor": ("tree.DecisionTreeRegressor", {"max_depth": 4}),
    "RandomForestRegressor": ("ensemble.RandomForestRegressor", FEW),
    "ExtraTreeRegressor": ("tree.ExtraTreeRegressor", {"max_depth": 4, **SEED}),
    "CastRegressor": ("skl2onnx.sklapi:CastRegressor", {"estimator": RIDGE}),
    "ExtraTreesRegressor": ("ensemble.ExtraTreesRegressor", FEW),
    "GradientBoostingRegressor": ("ensemble.GradientBoostingRegressor", FEW),
    "AdaBoostRegressor": ("ensemble.AdaBoostRegressor", FEW),
    "BaggingRegressor": ("ensemble.BaggingRegressor", FEW),
    "VotingRegressor": ("ensemble.VotingRegressor", {"estimators": BASES}),
    "StackingRegressor": ("ensemble.StackingRegressor", {"estimators": BASES, "cv": 2}),
    "KNeighborsRegressor": ("neighbors.KNeighborsRegressor", {"n_neighbors": 3}),
    "RadiusNeighborsRegressor": ("neighbors.RadiusNeighborsRegressor", {"radius": 9.0}),
    "MLPRegressor": ("neural_network.MLPRegressor", {"hidden_layer_sizes": (6,), "max_iter": 30, **SEED}),
    "GaussianProcessRegressor": ("gaussian_process.GaussianProcessRegressor", {}),
    "PLSRegression": ("cross_decomposition.PLSRegression", {}),
}  # fmt: skip

OF_TARGETS: dict[str, Spelt] = {
    "MultiOutputRegressor": ("multioutput.MultiOutputRegressor", {"estimator": RIDGE}),
    "MultiTaskElasticNet": ("linear_model.MultiTaskElasticNet", {}),
    "MultiTaskElasticNetCV": ("linear_model.MultiTaskElasticNetCV", {"cv": 2}),
    "MultiTaskLasso": ("linear_model.MultiTaskLasso", {}),
    "MultiTaskLassoCV": ("linear_model.MultiTaskLassoCV", {"cv": 2}),
}
"""Those of several numbers for each row."""

TRANSFORMERS: dict[str, Spelt] = {
    "StandardScaler": ("preprocessing.StandardScaler", {}),
    "MinMaxScaler": ("preprocessing.MinMaxScaler", {}),
    "MaxAbsScaler": ("preprocessing.MaxAbsScaler", {}),
    "RobustScaler": ("preprocessing.RobustScaler", {}),
    "Normalizer": ("preprocessing.Normalizer", {}),
    "Normalizer l1": ("preprocessing.Normalizer", {"norm": "l1"}),
    "Normalizer max": ("preprocessing.Normalizer", {"norm": "max"}),
    "Binarizer": ("preprocessing.Binarizer", {"threshold": 0.2}),
    "KBinsDiscretizer": ("preprocessing.KBinsDiscretizer", {"n_bins": 3, "encode": "onehot-dense"}),
    "KBinsDiscretizer ordinal": ("preprocessing.KBinsDiscretizer", {"n_bins": 3, "encode": "ordinal"}),
    "PolynomialFeatures": ("preprocessing.PolynomialFeatures", {}),
    "PowerTransformer": ("preprocessing.PowerTransformer", {}),
    "QuantileTransformer": ("preprocessing.QuantileTransformer", {"n_quantiles": 10}),
    "FunctionTransformer": ("preprocessing.FunctionTransformer", {}),
    "PCA": ("decomposition.PCA", {"n_components": 2}),
    "IncrementalPCA": ("decomposition.IncrementalPCA", {"n_components": 2}),
    "TruncatedSVD": ("decomposition.TruncatedSVD", {"n_components": 2}),
    "KernelPCA": ("decomposition.KernelPCA", {"n_components": 2, "kernel": "rbf"}),
    "SelectKBest": ("feature_selection.SelectKBest", {"k": 2}),
    "SelectPercentile": ("feature_selection.SelectPercentile", {"percentile": 60}),
    "VarianceThreshold": ("feature_selection.VarianceThreshold", {}),
    "SelectFromModel": ("feature_selection.SelectFromModel", {"estimator": LOGISTIC}),
    "RFECV": ("feature_selection.RFECV", {"estimator": LOGISTIC, "cv": 2}),
    "GenericUnivariateSelect": ("feature_selection.GenericUnivariateSelect", {"mode": "k_best", "param": 2}),
    **{name: (f"feature_selection.{name}", {}) for name in ("SelectFdr", "SelectFpr", "SelectFwe")},
    "RandomTreesEmbedding": ("ensemble.RandomTreesEmbedding", {"max_depth": 3, "sparse_output": False, **FEW}),
    "NeighborhoodComponentsAnalysis": ("neighbors.NeighborhoodComponentsAnalysis", {"n_components": 2, **SEED}),
    "NearestNeighbors": ("neighbors.NearestNeighbors", {"n_neighbors": 2, "radius": None}),
    "KernelCenterer": ("preprocessing.KernelCenterer", {}),
    "CastTransformer": ("skl2onnx.sklapi:CastTransformer", {}),
    "ReplaceTransformer": ("skl2onnx.sklapi:ReplaceTransformer", {"from_value": 0, "to_value": -1}),
    "RFE": ("feature_selection.RFE", {"estimator": LOGISTIC, "n_features_to_select": 2}),
    "GaussianRandomProjection": ("random_projection.GaussianRandomProjection", {"n_components": 3, **SEED}),
    "KMeans": ("cluster.KMeans", {"n_clusters": 3, "n_init": 1, **SEED}),
    "MiniBatchKMeans": ("cluster.MiniBatchKMeans", {"n_clusters": 3, "n_init": 1, **SEED}),
    "GaussianMixture": ("mixture.GaussianMixture", {"n_components": 2, **SEED}),
    "BayesianGaussianMixture": ("mixture.BayesianGaussianMixture", {"n_components": 2, **SEED}),
    "IsolationForest": ("ensemble.IsolationForest", FEW),
    "LocalOutlierFactor": ("neighbors.LocalOutlierFactor", {"novelty": True}),
    "OneClassSVM": ("svm.OneClassSVM", {}),
    "SGDOneClassSVM": ("linear_model.SGDOneClassSVM", SEED),
    "KNeighborsTransformer": ("neighbors.KNeighborsTransformer", {"n_neighbors": 2}),
}

MEAN: Spelt = ("impute.SimpleImputer", {})
SCALER: Spelt = ("preprocessing.StandardScaler", {})

IMPUTERS: dict[str, Spelt] = {
    "SimpleImputer": MEAN,
    "SimpleImputer median": ("impute.SimpleImputer", {"strategy": "median"}),
    "KNNImputer": ("impute.KNNImputer", {"n_neighbors": 2}),
    "Imputed": ("pipeline.make_pipeline", {"args": (MEAN, SCALER, LOGISTIC)}),
}

ENCODERS: dict[str, Spelt] = {
    "OneHotEncoder": ("preprocessing.OneHotEncoder", {"sparse_output": False}),
    "OneHotEncoder ignoring": ("preprocessing.OneHotEncoder", {"handle_unknown": "ignore"}),
    "OrdinalEncoder": ("preprocessing.OrdinalEncoder", {}),
}

_NUMBERS = ("numbers", SCALER, [0, 1])
_WORDS = ("words", ("preprocessing.OneHotEncoder", {"handle_unknown": "ignore"}), [2])
COLUMNS: Spelt = ("compose.ColumnTransformer", {"transformers": [_NUMBERS, _WORDS]})


def _piped(*steps: Spelt) -> Spelt:
    return ("pipeline.make_pipeline", {"args": steps})


PIPELINES: dict[str, Spelt] = {
    "Columns": COLUMNS,
    "Columns, logistic": _piped(COLUMNS, LOGISTIC),
    "Columns, forest": _piped(COLUMNS, ("ensemble.RandomForestClassifier", FEW)),
    "Columns, SVC": _piped(COLUMNS, PROBABLE),
    "Pipeline, PCA": _piped(SCALER, ("decomposition.PCA", {"n_components": 3}), LOGISTIC),
    "Pipeline, SVC": _piped(SCALER, PROBABLE),
    "Pipeline, union": _piped(
        ("pipeline.make_union", {"args": (SCALER, ("decomposition.PCA", {"n_components": 2}))}), LOGISTIC
    ),
    "GridSearchCV": (
        "model_selection.GridSearchCV",
        {"estimator": LOGISTIC, "param_grid": {"C": [0.5, 1]}, "cv": 2},
    ),
}

TEXTS: dict[str, Spelt] = {
    "Text, characters": (
        "feature_extraction.text.CountVectorizer",
        {"analyzer": "char", "ngram_range": (1, 2), "lowercase": False},
    ),
    "Text, words": ("feature_extraction.text.TfidfVectorizer", {"lowercase": False}),
    "Text, weighted": _piped(
        ("feature_extraction.text.CountVectorizer", {"lowercase": False}),
        ("feature_extraction.text.TfidfTransformer", {}),
    ),
    "Text, classified": _piped(("feature_extraction.text.TfidfVectorizer", {"lowercase": False}), LOGISTIC),
}

HASHERS: dict[str, Spelt] = {
    "FeatureHasher": ("feature_extraction.FeatureHasher", {"n_features": 8, "input_type": "string"}),
    "FeatureHasher, positive": (
        "feature_extraction.FeatureHasher", {"n_features": 16, "input_type": "string", "alternate_sign": False},
    ),
}  # fmt: skip

_SMALL: dict[str, Any] = {"n_estimators": 5, "verbose": -1, "min_child_samples": 3}

LIGHTGBM: dict[str, Spelt] = {
    "LGBMClassifier": ("lightgbm:LGBMClassifier", _SMALL),
    "LGBMRegressor": ("lightgbm:LGBMRegressor", _SMALL),
    "LGBMRegressor, Poisson": ("lightgbm:LGBMRegressor", {"objective": "poisson", **_SMALL}),
    "LGBMRegressor, dart": ("lightgbm:LGBMRegressor", {"boosting_type": "dart", **_SMALL}),
}

XGBOOST: dict[str, Spelt] = {
    "XGBClassifier": ("xgboost:XGBClassifier", {"n_estimators": 5}),
    "XGBRFClassifier": ("xgboost:XGBRFClassifier", {"n_estimators": 5}),
    "XGBRegressor": ("xgboost:XGBRegressor", {"n_estimators": 5}),
    "XGBRFRegressor": ("xgboost:XGBRFRegressor", {"n_estimators": 5}),
    "XGBRegressor, Poisson": ("xgboost:XGBRegressor", {"n_estimators": 5, "objective": "count:poisson"}),
}

NOT_MADE: dict[str, str] = {
    "DictVectorizer": "is given dictionaries, not rows: generated/test_host_operators.py",
    "FeatureUnion": "'Pipeline, union' has one",
    "GaussianProcessClassifier": "becomes com.microsoft.Solve, which ONNX Runtime does not have",
    **dict.fromkeys(
        ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"),
        "skl2onnx 1.20 writes numbers of numpy into attributes, which onnx refuses",
    ),
    "Pipeline": "those that 'make_pipeline' makes",
    "_ConstantPredictor": "'Constant predictor' has one",
}
"""Estimators that skl2onnx converts and that are not spelt out here, with the reason."""
