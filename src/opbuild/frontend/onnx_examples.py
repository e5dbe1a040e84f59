"""Small models of one node, by which the support of an operator of ONNX or of ``ai.onnx.ml`` is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

from opbuild.frontend.rewritten import LEARNED
from opbuild.graph.shape_rules import ONNX_NUMBERS
from opbuild.graph.types import DTYPES, Array
from opbuild.platform.records import NamedTuple


class ExampleOperand(NamedTuple):
    """An input of an example.

    Attributes:
        shape: Its shape.
        dtype: Its element type; empty for the type that is asked about.
        value: Its contents if they are known when the network is built; None if they are given to each call.
    """

    shape: tuple[int, ...]
    dtype: str = ""
    value: Array | float | None = None


class Usage(NamedTuple):
    """One way to use an operator.

    Attributes:
        label: What is particular about it; empty if there is one form only.
        inputs: Its inputs; None for an absent one.
        attrs: Its attributes; a function makes one of the element type that is asked about.
        outputs: How many outputs it has.
    """

    label: str
    inputs: tuple[ExampleOperand | None, ...]
    attrs: Mapping[str, Any] = {}
    outputs: int = 1


class OperatorExample(NamedTuple):
    """A model of one node.

    Attributes:
        op_type: The operator, with its domain before it if that is not ONNX's own.
        label: The label of its form.
        dtype: The element type that is asked about.
        model: The model; None if opbuild has no such values: sequences, optional values, text.
    """

    op_type: str
    label: str
    dtype: str
    model: onnx.ModelProto | None


def given(*shape: int, dtype: str = "") -> ExampleOperand:
    """Return an input that is given to each call."""
    return ExampleOperand(shape, dtype)


def known(*shape: int, dtype: str = "", value: Any = 1) -> ExampleOperand:
    """Return an input that is known when the network is built, as weights are: one number, repeated."""
    return ExampleOperand(shape, dtype, value)


def model_of(
    domain: str,
    op_type: str,
    form: Usage,
    dtype: str,
    versions: Mapping[str, int],
    kind_of: Callable[[int], str] | None = None,
) -> onnx.ModelProto:
    """Return the model of a form of an operator.

    Args:
        domain: The operator's domain.
        op_type: Its type.
        form: The form.
        dtype: The element type that is asked about.
        versions: Operator sets, by domain.
        kind_of: Returns the element type of the input at a place that states none; if it is left out, all such inputs
            have the type that is asked about.
    """
    names, inputs, constants = [], [], []
    for number, operand in enumerate(form.inputs):
        names.append("" if operand is None else f"x{number}")
        if operand is None:
            continue
        kind = operand.dtype or (kind_of(number) if kind_of else dtype)
        if operand.value is None:
            inputs.append(helper.make_tensor_value_info(names[-1], ONNX_NUMBERS[kind], operand.shape))
        else:
            contents = np.full(operand.shape, operand.value).astype(kind)
            constants.append(numpy_helper.from_array(contents, names[-1]))
    outputs = [f"y{number}" for number in range(form.outputs)]
    attrs = {name: value(dtype) if callable(value) else value for name, value in form.attrs.items()}
    node = helper.make_node(op_type, names, outputs, name="node", domain=domain, **attrs)
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
    graph = helper.make_graph([node], op_type, inputs, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in versions.items()])


_FEW_ROWS = given(4, 3)

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


def _one(*inputs: ExampleOperand | None, outputs: int = 1, **attrs: Any) -> tuple[Usage, ...]:
    return (Usage("", inputs, attrs, outputs),)


LEARNED_FORMS: Mapping[str, tuple[Usage, ...]] = {
    "ArrayFeatureExtractor": _one(_FEW_ROWS, known(2, dtype="int64")),
    **dict.fromkeys(("Binarizer", "Normalizer"), _one(_FEW_ROWS)),
    "ZipMap": _one(_FEW_ROWS, classlabels_int64s=[0, 1, 2]),
    "CategoryMapper": _one(_FEW_ROWS, cats_strings=["a", "b"], cats_int64s=[0, 1]),
    "FeatureVectorizer": _one(_FEW_ROWS, _FEW_ROWS, inputdimensions=[3, 3]),
    "Imputer": _one(_FEW_ROWS, imputed_value_floats=[1.0], imputed_value_int64s=[1]),
    "LabelEncoder": _one(_FEW_ROWS, keys_tensor=_tensor(0, 1), values_tensor=_tensor(1, 0)),
    "LinearClassifier": _one(_FEW_ROWS, outputs=2, coefficients=[0.5] * 6, intercepts=[0.0, 1.0], **_LABELS),
    "LinearRegressor": _one(_FEW_ROWS, coefficients=[0.5] * 3),
    "OneHotEncoder": _one(_FEW_ROWS, cats_int64s=[0, 1, 2]),
    "SVMClassifier": _one(_FEW_ROWS, outputs=2, coefficients=[0.5, -0.5], support_vectors=[0.5] * 6, rho=[0.0],
                          vectors_per_class=[1, 1], kernel_type="RBF", kernel_params=[0.5, 0.0, 3.0], **_LABELS),
    "SVMRegressor": _one(_FEW_ROWS, coefficients=[0.5, -0.5], support_vectors=[0.5] * 6, rho=[0.0], n_supports=2,
                         kernel_type="RBF", kernel_params=[0.5, 0.0, 3.0]),
    "Scaler": _one(_FEW_ROWS, offset=[0.5], scale=[2.0]),
    "TreeEnsemble": _one(
        _FEW_ROWS, tree_roots=[0], nodes_featureids=[0], nodes_truenodeids=[0], nodes_falsenodeids=[1],
        nodes_trueleafs=[1], nodes_falseleafs=[1], nodes_splits=_tensor(0.5), leaf_targetids=[0, 0],
        leaf_weights=_tensor(0.25, 0.75), nodes_modes=numpy_helper.from_array(np.zeros(1, np.uint8)),
    ),
    "TreeEnsembleClassifier": _one(_FEW_ROWS, outputs=2, classlabels_int64s=[0, 1], **_votes("class")),
    "TreeEnsembleRegressor": _one(_FEW_ROWS, **_votes("target")),
}  # fmt: skip
"""By an operator's type, without its domain."""


_SPELLED = {"float": "float32", "double": "float64"}
_PREFERRED = ("float32", "int64", "int32", "bool", "uint8")


def operator_types(domain: str = "") -> tuple[str, ...]:
    """Return the operators of ONNX's domain or of ``ai.onnx.ml``, sorted; the latter with the domain before them."""
    return tuple(sorted(name for name, schema in _schemas().items() if schema.domain == domain))


def examples(name: str) -> Iterator[OperatorExample]:
    """Yield models of an operator: one for each form and element type."""
    schema = _schemas()[name]
    main, dtypes = _main_type(schema)
    if any(not _dtypes(schema, port.type_str) for port in schema.inputs[: schema.min_input]):
        dtypes = ()
    for form in FORMS.get(name) or (_usual(schema),):
        if not dtypes:
            yield OperatorExample(name, form.label, "", None)
        for dtype in dtypes:
            yield OperatorExample(name, form.label, dtype, _model(schema, form, main, dtype))


@lru_cache(maxsize=1)
def _schemas() -> Mapping[str, Any]:
    """Return the newest schema of each operator; one of ONNX's own that is deprecated is left out."""
    found = {each.name: each for each in defs.get_all_schemas() if not each.domain and not each.deprecated}
    every = sorted(defs.get_all_schemas_with_history(), key=lambda each: each.since_version)
    learned = (each for each in every if each.domain == LEARNED and not each.deprecated)
    return found | {f"{LEARNED}.{each.name}": each for each in learned}


def _model(schema: Any, form: Usage, main: str, dtype: str) -> onnx.ModelProto:
    versions = {"": defs.onnx_opset_version(), **({LEARNED: schema.since_version} if schema.domain else {})}

    def kind_of(place: int) -> str:
        return _type_of(schema, schema.inputs[min(place, len(schema.inputs) - 1)].type_str, main, dtype)

    return model_of(schema.domain, schema.name, form, dtype, versions, kind_of)


def _main_type(schema: Any) -> tuple[str, tuple[str, ...]]:
    """Return the type parameter of an operator that allows most types, and the types, by their numpy names."""
    ports = [port.type_str for port in (*schema.inputs, *schema.outputs)]
    ports = [_MAIN[schema.name]] if schema.name in _MAIN else ports
    return max(((port, _dtypes(schema, port)) for port in ports), key=lambda each: len(each[1]), default=("", ()))


def _dtypes(schema: Any, port: str) -> tuple[str, ...]:
    constraints = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    spelled = {text[len("tensor(") : -1] for text in constraints.get(port, [port]) if text.startswith("tensor(")}
    names = {_SPELLED.get(name, name) for name in spelled}
    return tuple(dtype for dtype in DTYPES if dtype in names)


def _usual(schema: Any) -> Usage:
    """Return the form of an operator that takes its required inputs, all of one shape."""
    variadic = schema.inputs and schema.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic
    return Usage("", (ExampleOperand(SHAPE),) * max(schema.min_input, min(schema.max_input, 2) if variadic else 0))


def _type_of(schema: Any, port: str, main: str, dtype: str) -> str:
    """Return the element type of an input: the one that is asked about, or the one that most models have there."""
    if port == main:
        return dtype
    allowed = _dtypes(schema, port)
    return dtype if dtype in allowed else next((each for each in _PREFERRED if each in allowed), dtype)


# -- what operators need -----------------------------------------------------------------------------------------------

SHAPE = (2, 16, 8, 8)


def _k(value: Any, dtype: str = "int64") -> ExampleOperand:
    """Return an input of known contents."""
    contents = np.asarray(value, dtype or None)
    return ExampleOperand(contents.shape, dtype, contents)


def _spatial(*more: int, weights: bool = False, **attrs: Any) -> tuple[Usage, ...]:
    """Return the forms with one, two and three spatial dimensions."""
    return tuple(
        Usage(
            f"{rank}-D",
            (given(2, 16, *(8,) * rank), *((known(16, 16, *(3,) * rank), known(16)) if weights else ())),
            {name: value(rank) for name, value in attrs.items()},
        )
        for rank in (1, 2, 3)
    )


def _port(name: str, dtype: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, ONNX_NUMBERS[dtype], shape)


def _branch(dtype: str) -> onnx.GraphProto:
    """Return the branch of an If: a constant."""
    value = numpy_helper.from_array(np.zeros(4, dtype))
    return helper.make_graph([helper.make_node("Constant", [], ["v"], value=value)], "b", [], [_port("v", dtype, 4)])


def _body(dtype: str) -> onnx.GraphProto:
    """Return the body of a Loop that changes nothing."""
    inputs = [_port("number", "int64"), _port("before", "bool"), _port("v", dtype, 4)]
    nodes = [helper.make_node("Identity", [a], [b]) for a, b in (("before", "after"), ("v", "w"))]
    return helper.make_graph(nodes, "body", inputs, [_port("after", "bool"), _port("w", dtype, 4)])


def _step(dtype: str) -> onnx.GraphProto:
    """Return the body of a Scan that changes nothing."""
    node = helper.make_node("Identity", ["v"], ["w"])
    return helper.make_graph([node], "body", [_port("v", dtype, 4)], [_port("w", dtype, 4)])


def _other(dtype: str) -> int:
    """Return another type than the one asked about, to cast to."""
    return int(TensorProto.FLOAT if dtype != "float32" else TensorProto.INT32)


_ROWS = given(4, 16)
_QUANTIZED = (known(dtype="float32"), known())

_MAIN: Mapping[str, str] = {
    **dict.fromkeys(("Attention", "CastLike", "DequantizeLinear", "GridSample", "QuantizeLinear"), "T1"),
    **dict.fromkeys(("If", "Loop", "Scan"), "V"),
}
"""The type parameter that is asked about, where it is not the one that allows most types."""

_REDUCED = (Usage("all axes", (given(*SHAPE),)), Usage("some axes", (given(*SHAPE), _k([2, 3]))))

FORMS: Mapping[str, tuple[Usage, ...]] = {
    **{
        f"Reduce{name}": _REDUCED
        for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _spatial(kernel_shape=lambda rank: [2] * rank)),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), _spatial()),
    **dict.fromkeys(("Conv", "ConvTranspose"), _spatial(weights=True)),
    "AffineGrid": _one(given(2, 2, 3), _k([2, 3, 8, 8])),
    "Attention": _one(given(2, 4, 8, 16), given(2, 4, 8, 16), given(2, 4, 8, 16)),
    "BatchNormalization": _one(given(*SHAPE), known(16), known(16), known(16), known(16)),
    "BitCast": _one(given(*SHAPE), to=lambda dtype: ONNX_NUMBERS[dtype]),
    "BitShift": _one(given(*SHAPE), given(*SHAPE), direction="LEFT"),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), _one(known())),
    "Cast": _one(given(*SHAPE), to=_other),
    "CastLike": _one(given(*SHAPE), given(dtype="float32")),
    "CausalConvWithState": _one(given(2, 16, 8), known(16, 1, 3), outputs=2),
    "CenterCropPad": _one(given(8, 8), _k([4, 10])),
    "Clip": _one(given(*SHAPE), known(), known()),
    "Col2Im": _one(given(1, 12, 16), _k([5, 5]), _k([2, 2])),
    "Compress": _one(given(8, 16), _k([True, False, True], "bool"), axis=0),
    "Concat": _one(given(*SHAPE), given(*SHAPE), axis=1),
    "Constant": _one(value=lambda dtype: numpy_helper.from_array(np.zeros(3, dtype))),
    "ConstantOfShape": _one(_k([2, 3]), value=lambda dtype: numpy_helper.from_array(np.zeros(1, dtype))),
    "ConvInteger": _one(given(2, 16, 8, 8), known(16, 16, 3, 3)),
    **dict.fromkeys(("CumProd", "CumSum"), _one(_ROWS, _k(1))),
    "DFT": _one(given(2, 16, 1), None, _k(1)),
    "DeformConv": _one(given(1, 2, 5, 5), known(2, 2, 2, 2), given(1, 8, 4, 4)),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _one(given(*SHAPE), blocksize=2)),
    "DequantizeLinear": _one(given(*SHAPE), *_QUANTIZED),
    "QuantizeLinear": _one(given(*SHAPE), known(), known(dtype="uint8")),
    "DynamicQuantizeLinear": _one(given(*SHAPE), outputs=3),
    "Det": _one(given(2, 4, 4)),
    "Einsum": _one(given(4, 16), given(16, 8), equation="ij,jk->ik"),
    "Expand": _one(given(1, 16), _k([4, 16])),
    "EyeLike": _one(given(4, 4)),
    **{
        name: _one(given(5, 2, 16), known(1, rows, 16), known(1, rows, 8), hidden_size=8)
        for name, rows in (("RNN", 8), ("GRU", 24), ("LSTM", 32))
    },
    "Gather": _one(given(8, 16), given(3, dtype="int64")),
    "GatherElements": _one(given(8, 16), given(8, 16, dtype="int64")),
    "GatherND": _one(given(8, 16), given(3, 1, dtype="int64")),
    "Gemm": _one(_ROWS, known(16, 32), known(32)),
    "GridSample": _one(given(2, 3, 8, 8), given(2, 4, 4, 2)),
    "GroupNormalization": _one(given(*SHAPE), known(16), known(16), num_groups=4),
    "InstanceNormalization": _one(given(*SHAPE), known(16), known(16)),
    "ImageDecoder": _one(given(64)),
    "Optional": _one(given(*SHAPE)),
    "If": _one(given(dtype="bool"), then_branch=_branch, else_branch=_branch),
    "Loop": (Usage("known inputs", (_k(3), _k(True, "bool"), known(4)), {"body": _body}),
             Usage("others", (_k(3), _k(True, "bool"), given(4)), {"body": _body})),
    "Scan": _one(given(3, 4), body=_step, num_scan_inputs=1),
    "LRN": _one(given(*SHAPE), size=5),
    "LayerNormalization": _one(_ROWS, known(16), known(16)),
    "RMSNormalization": _one(_ROWS, known(16)),
    "LinearAttention": _one(given(2, 4, 16), given(2, 4, 16), given(2, 4, 16), outputs=2, q_num_heads=2, kv_num_heads=2,
                            update_rule="linear"),
    "MatMul": (Usage("known matrix", (_ROWS, known(16, 32))), Usage("two inputs", (given(2, 4, 16), given(2, 16, 8)))),
    "MatMulInteger": _one(_ROWS, known(16, 32)),
    "MaxRoiPool": _one(given(1, 3, 8, 8), _k([[0, 0, 0, 4, 4]], ""), pooled_shape=[2, 2]),
    "MaxUnpool": _one(given(1, 1, 2, 2), given(1, 1, 2, 2, dtype="int64"), kernel_shape=[2, 2], strides=[2, 2]),
    "MelWeightMatrix": _one(_k(8), _k(16), _k(8192), known(dtype="float32"), _k(4096.0, "float32")),
    "Multinomial": _one(given(2, 8)),
    **dict.fromkeys(
        ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _one(given(4, 16), given(4, dtype="int64"))
    ),
    "NonMaxSuppression": _one(given(1, 8, 4), given(1, 1, 8)),
    "OneHot": _one(given(4, dtype="int64"), _k(10), given(2)),
    "PRelu": _one(given(*SHAPE), known(16, 1, 1)),
    "Pad": tuple(
        Usage(mode, (given(*SHAPE), _k([0, 0, 1, 1, 0, 0, 1, 1])), {"mode": mode})
        for mode in ("constant", "reflect", "edge", "wrap")
    ),
    "QLinearConv": _one(given(2, 16, 8, 8), known(dtype="float32"), known(), known(16, 16, 3, 3),
                        known(dtype="float32"), known(), known(dtype="float32"), known()),
    "QLinearMatMul": _one(_ROWS, known(dtype="float32"), known(), known(16, 32), known(dtype="float32"), known(),
                          known(dtype="float32"), known()),
    **dict.fromkeys(("RandomNormal", "RandomUniform"), _one(shape=[2, 3], dtype=lambda dtype: ONNX_NUMBERS[dtype])),
    "Range": _one(_k(0, ""), _k(8, ""), _k(1, "")),
    "Reshape": _one(given(*SHAPE), _k([2, -1])),
    "Resize": tuple(
        Usage(mode, (given(*SHAPE), None, _k([1, 1, 2, 2], "float32")), {"mode": mode})
        for mode in ("nearest", "linear", "cubic")
    ),
    "ReverseSequence": _one(given(4, 4), _k([1, 2, 3, 4])),
    "RoiAlign": tuple(
        Usage(label, (given(1, 3, 8, 8), given(2, 4), _k([0, 0])),
             {"output_height": 2, "output_width": 2, "sampling_ratio": samples})
        for label, samples in (("a number of samples", 2), ("samples by size", 0))
    ),
    "RotaryEmbedding": _one(given(2, 4, 8, 16), given(2, 8, 8), given(2, 8, 8)),
    "STFT": _one(given(1, 16, 1), _k(4), known(8)),
    "ScatterElements": _one(given(8, 16), given(2, 16, dtype="int64"), given(2, 16)),
    "ScatterND": _one(given(8, 16), given(3, 1, dtype="int64"), given(3, 16)),
    "Slice": _one(given(8, 16), _k([1]), _k([7]), _k([0]), _k([2])),
    "Split": _one(given(8, 16), outputs=2, num_outputs=2),
    "Squeeze": _one(given(2, 1, 8), _k([1])),
    "TensorScatter": _one(given(2, 4, 8, 16), given(2, 4, 1, 16)),
    "TfIdfVectorizer": _one(given(8), mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0,
                            ngram_counts=[0], ngram_indexes=[0, 1], pool_int64s=[2, 3]),
    "Tile": _one(given(2, 8), _k([2, 3])),
    "TopK": _one(given(4, 16), _k([3]), outputs=2),
    "Unsqueeze": _one(given(2, 8), _k([1])),
    **{f"{LEARNED}.{op_type}": forms for op_type, forms in LEARNED_FORMS.items()},
}  # fmt: skip
"""The forms of operators that do not just take inputs of one shape."""
