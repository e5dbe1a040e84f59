"""The forms of the operators of ``ai.onnx.ml``, by which is asked what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import numpy_helper

from opbuild.frontend.operator_examples import Form, Operand, given, known

_ROWS = given(4, 3)

_LABELS: dict[str, Any] = {"classlabels_ints": [0, 1]}
_NODES: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
}  # fmt: skip
"""A tree of one branch and two leaves."""


def _votes(side: str) -> dict[str, Any]:
    """Return a weight of each leaf, for target or class 0."""
    columns = {"treeids": [0, 0], "nodeids": [1, 2], "ids": [0, 0], "weights": [0.25, 0.75]}
    return _NODES | {f"{side}_{name}": values for name, values in columns.items()}


def _tensor(*values: float) -> Any:
    """Return the function that makes an attribute of such values, of the element type that is asked about."""
    return lambda dtype: numpy_helper.from_array(np.array(values, dtype))


def _one(*inputs: Operand, outputs: int = 1, **attrs: Any) -> tuple[Form, ...]:
    return (Form("", inputs, attrs, outputs),)


LEARNED_FORMS: Mapping[str, tuple[Form, ...]] = {
    "ArrayFeatureExtractor": _one(_ROWS, known(2, dtype="int64")),
    **dict.fromkeys(("Binarizer", "Normalizer"), _one(_ROWS)),
    "ZipMap": _one(_ROWS, classlabels_int64s=[0, 1, 2]),
    "CategoryMapper": _one(_ROWS, cats_strings=["a", "b"], cats_int64s=[0, 1]),
    "FeatureVectorizer": _one(_ROWS, _ROWS, inputdimensions=[3, 3]),
    "Imputer": _one(_ROWS, imputed_value_floats=[1.0], imputed_value_int64s=[1]),
    "LabelEncoder": _one(_ROWS, keys_tensor=_tensor(0, 1), values_tensor=_tensor(1, 0)),
    "LinearClassifier": _one(_ROWS, outputs=2, coefficients=[0.5] * 6, intercepts=[0.0, 1.0], **_LABELS),
    "LinearRegressor": _one(_ROWS, coefficients=[0.5] * 3),
    "OneHotEncoder": _one(_ROWS, cats_int64s=[0, 1, 2]),
    "SVMClassifier": _one(_ROWS, outputs=2, coefficients=[0.5, -0.5], support_vectors=[0.5] * 6, rho=[0.0],
                          vectors_per_class=[1, 1], kernel_type="RBF", kernel_params=[0.5, 0.0, 3.0], **_LABELS),
    "SVMRegressor": _one(_ROWS, coefficients=[0.5, -0.5], support_vectors=[0.5] * 6, rho=[0.0], n_supports=2,
                         kernel_type="RBF", kernel_params=[0.5, 0.0, 3.0]),
    "Scaler": _one(_ROWS, offset=[0.5], scale=[2.0]),
    "TreeEnsemble": _one(
        _ROWS, tree_roots=[0], nodes_featureids=[0], nodes_truenodeids=[0], nodes_falsenodeids=[1],
        nodes_trueleafs=[1], nodes_falseleafs=[1], nodes_splits=_tensor(0.5), leaf_targetids=[0, 0],
        leaf_weights=_tensor(0.25, 0.75), nodes_modes=numpy_helper.from_array(np.zeros(1, np.uint8)),
    ),
    "TreeEnsembleClassifier": _one(_ROWS, outputs=2, classlabels_int64s=[0, 1], **_votes("class")),
    "TreeEnsembleRegressor": _one(_ROWS, **_votes("target")),
}  # fmt: skip
"""By an operator's type, without its domain."""
