"""Small models of one node, by which the support of an operator of ONNX, of ``ai.onnx.ml`` or ONNX Runtime is asked.

Which of ONNX Runtime's operators there are the registries say: what is written with ONNX's operators, and what has a
shape rule. Searches have decoders and encoders with one layer, of one head: a token's successor is the likeliest; keys
and values are kept, as a search wants them, and nothing attends to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper, parser

from opbuild.frontend.rewritten import LEARNED, MICROSOFT, NCHWC, REWRITES
from opbuild.graph.passes import infer  # noqa: F401 - it registers the rules
from opbuild.graph.shape_rules import ONNX_NUMBERS, RULES
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


class MicrosoftExamples(NamedTuple):
    """The examples of an operator of ONNX Runtime.

    Attributes:
        dtypes: Element types that are asked about; none if it is given text.
        forms: Ways to use it.
    """

    dtypes: tuple[str, ...]
    forms: tuple[Usage, ...]


def _x(*shape: int, dtype: str = "") -> ExampleOperand:
    """Return an input that is given to each call."""
    return ExampleOperand(shape, dtype)


def _w(*shape: int, dtype: str = "", value: Any = 1) -> ExampleOperand:
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
    """Return the model of a form of an operator for an element type, which speaks operator sets of some versions.

    ``kind_of`` returns the element type of an input that states none, by its place; without it is the one asked about.
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


_FEW_ROWS = _x(4, 3)

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
    "ArrayFeatureExtractor": _one(_FEW_ROWS, _w(2, dtype="int64")),
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


@lru_cache
def operator_types(domain: str = "") -> tuple[str, ...]:
    """Return the operators of ONNX, of ``ai.onnx.ml`` or ONNX Runtime, sorted; all but the first with their domain."""
    if domain != MICROSOFT:
        return tuple(sorted(name for name, schema in _schemas().items() if schema.domain == domain))
    return tuple(sorted({".".join(each) for each in (*REWRITES, *RULES) if each[0] in (MICROSOFT, NCHWC)}))


def examples(name: str) -> Iterator[OperatorExample]:
    """Yield models of an operator: one for each form and element type."""
    domain, _, op_type = name.rpartition(".")
    if domain.startswith(MICROSOFT):
        dtypes, forms = MICROSOFT_FORMS[op_type if domain == MICROSOFT else name]
        yield from _models(
            name, dtypes, forms, lambda form, dtype: model_of(domain, op_type, form, dtype, {"": 21, domain: 1})
        )
        return
    schema = _schemas()[name]
    main, dtypes = _main_type(schema)
    if any(not _dtypes(schema, port.type_str) for port in schema.inputs[: schema.min_input]):
        dtypes = ()
    forms = FORMS.get(name) or (_usual_form(schema),)
    yield from _models(name, dtypes, forms, lambda form, dtype: _model(schema, form, main, dtype))


def _models(
    name: str, dtypes: Sequence[str], forms: Sequence[Usage], model: Callable[[Usage, str], onnx.ModelProto]
) -> Iterator[OperatorExample]:
    for form in forms:
        if not dtypes:
            yield OperatorExample(name, form.label, "", None)
        for dtype in dtypes:
            yield OperatorExample(name, form.label, dtype, model(form, dtype))


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


def _usual_form(schema: Any) -> Usage:
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
_IMAGES = _x(*SHAPE)


def _k(value: Any, dtype: str = "int64") -> ExampleOperand:
    """Return an input of known contents."""
    contents = np.asarray(value, dtype or None)
    return ExampleOperand(contents.shape, dtype, contents)


def _spatial(*more: int, weights: bool = False, **attrs: Any) -> tuple[Usage, ...]:
    """Return the forms with one, two and three spatial dimensions."""
    return tuple(
        Usage(
            f"{rank}-D",
            (_x(2, 16, *(8,) * rank), *((_w(16, 16, *(3,) * rank), _w(16)) if weights else ())),
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


_MATRIX = _x(4, 16)
_SCALE, _ZERO = _w(dtype="float32"), _w()
_QUANTIZED = (_SCALE, _ZERO)

_MAIN: Mapping[str, str] = {
    **dict.fromkeys(("Attention", "CastLike", "DequantizeLinear", "GridSample", "QuantizeLinear"), "T1"),
    **dict.fromkeys(("If", "Loop", "Scan"), "V"),
}
"""The type parameter that is asked about, where it is not the one that allows most types."""

_REDUCED = (Usage("all axes", (_IMAGES,)), Usage("some axes", (_IMAGES, _k([2, 3]))))

FORMS: Mapping[str, tuple[Usage, ...]] = {
    **{
        f"Reduce{name}": _REDUCED
        for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _spatial(kernel_shape=lambda rank: [2] * rank)),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), _spatial()),
    **dict.fromkeys(("Conv", "ConvTranspose"), _spatial(weights=True)),
    "AffineGrid": _one(_x(2, 2, 3), _k([2, 3, 8, 8])),
    "Attention": _one(_x(2, 4, 8, 16), _x(2, 4, 8, 16), _x(2, 4, 8, 16)),
    "BatchNormalization": _one(_IMAGES, _w(16), _w(16), _w(16), _w(16)),
    "BitCast": _one(_IMAGES, to=lambda dtype: ONNX_NUMBERS[dtype]),
    "BitShift": _one(_IMAGES, _IMAGES, direction="LEFT"),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), _one(_w())),
    "Cast": _one(_IMAGES, to=lambda dtype: ONNX_NUMBERS["float32" if dtype != "float32" else "int32"]),
    "CastLike": _one(_IMAGES, _x(dtype="float32")),
    "CausalConvWithState": _one(_x(2, 16, 8), _w(16, 1, 3), outputs=2),
    "CenterCropPad": _one(_x(8, 8), _k([4, 10])),
    "Clip": _one(_IMAGES, _w(), _w()),
    "Col2Im": _one(_x(1, 12, 16), _k([5, 5]), _k([2, 2])),
    "Compress": _one(_x(8, 16), _k([True, False, True], "bool"), axis=0),
    "Concat": _one(_IMAGES, _IMAGES, axis=1),
    "Constant": _one(value=lambda dtype: numpy_helper.from_array(np.zeros(3, dtype))),
    "ConstantOfShape": _one(_k([2, 3]), value=lambda dtype: numpy_helper.from_array(np.zeros(1, dtype))),
    "ConvInteger": _one(_x(2, 16, 8, 8), _w(16, 16, 3, 3)),
    **dict.fromkeys(("CumProd", "CumSum"), _one(_MATRIX, _k(1))),
    "DFT": _one(_x(2, 16, 1), None, _k(1)),
    "DeformConv": _one(_x(1, 2, 5, 5), _w(2, 2, 2, 2), _x(1, 8, 4, 4)),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _one(_IMAGES, blocksize=2)),
    "DequantizeLinear": _one(_IMAGES, *_QUANTIZED),
    "QuantizeLinear": _one(_IMAGES, _w(), _w(dtype="uint8")),
    "DynamicQuantizeLinear": _one(_IMAGES, outputs=3),
    "Det": _one(_x(2, 4, 4)),
    "Einsum": _one(_x(4, 16), _x(16, 8), equation="ij,jk->ik"),
    "Expand": _one(_x(1, 16), _k([4, 16])),
    "EyeLike": _one(_x(4, 4)),
    **{
        name: _one(_x(5, 2, 16), _w(1, rows, 16), _w(1, rows, 8), hidden_size=8)
        for name, rows in (("RNN", 8), ("GRU", 24), ("LSTM", 32))
    },
    "Gather": _one(_x(8, 16), _x(3, dtype="int64")),
    "GatherElements": _one(_x(8, 16), _x(8, 16, dtype="int64")),
    "GatherND": _one(_x(8, 16), _x(3, 1, dtype="int64")),
    "Gemm": _one(_MATRIX, _w(16, 32), _w(32)),
    "GridSample": _one(_x(2, 3, 8, 8), _x(2, 4, 4, 2)),
    "GroupNormalization": _one(_IMAGES, _w(16), _w(16), num_groups=4),
    "InstanceNormalization": _one(_IMAGES, _w(16), _w(16)),
    "ImageDecoder": _one(_x(64)),
    "Optional": _one(_IMAGES),
    "If": _one(_x(dtype="bool"), then_branch=_branch, else_branch=_branch),
    "Loop": (Usage("known inputs", (_k(3), _k(True, "bool"), _w(4)), {"body": _body}),
             Usage("others", (_k(3), _k(True, "bool"), _x(4)), {"body": _body})),
    "Scan": _one(_x(3, 4), body=_step, num_scan_inputs=1),
    "LRN": _one(_IMAGES, size=5),
    "LayerNormalization": _one(_MATRIX, _w(16), _w(16)),
    "RMSNormalization": _one(_MATRIX, _w(16)),
    "LinearAttention": _one(_x(2, 4, 16), _x(2, 4, 16), _x(2, 4, 16), outputs=2, q_num_heads=2, kv_num_heads=2,
                            update_rule="linear"),
    "MatMul": (Usage("known matrix", (_MATRIX, _w(16, 32))), Usage("two inputs", (_x(2, 4, 16), _x(2, 16, 8)))),
    "MatMulInteger": _one(_MATRIX, _w(16, 32)),
    "MaxRoiPool": _one(_x(1, 3, 8, 8), _k([[0, 0, 0, 4, 4]], ""), pooled_shape=[2, 2]),
    "MaxUnpool": _one(_x(1, 1, 2, 2), _x(1, 1, 2, 2, dtype="int64"), kernel_shape=[2, 2], strides=[2, 2]),
    "MelWeightMatrix": _one(_k(8), _k(16), _k(8192), _w(dtype="float32"), _k(4096.0, "float32")),
    "Multinomial": _one(_x(2, 8)),
    **dict.fromkeys(
        ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _one(_x(4, 16), _x(4, dtype="int64"))
    ),
    "NonMaxSuppression": _one(_x(1, 8, 4), _x(1, 1, 8)),
    "OneHot": _one(_x(4, dtype="int64"), _k(10), _x(2)),
    "PRelu": _one(_IMAGES, _w(16, 1, 1)),
    "Pad": tuple(
        Usage(mode, (_IMAGES, _k([0, 0, 1, 1, 0, 0, 1, 1])), {"mode": mode})
        for mode in ("constant", "reflect", "edge", "wrap")
    ),
    "QLinearConv": _one(_x(2, 16, 8, 8), *_QUANTIZED, _w(16, 16, 3, 3), *_QUANTIZED, *_QUANTIZED),
    "QLinearMatMul": _one(_MATRIX, *_QUANTIZED, _w(16, 32), _w(dtype="float32"), _w(), _w(dtype="float32"), _w()),
    **dict.fromkeys(("RandomNormal", "RandomUniform"), _one(shape=[2, 3], dtype=lambda dtype: ONNX_NUMBERS[dtype])),
    "Range": _one(_k(0, ""), _k(8, ""), _k(1, "")),
    "Reshape": _one(_IMAGES, _k([2, -1])),
    "Resize": tuple(
        Usage(mode, (_IMAGES, None, _k([1, 1, 2, 2], "float32")), {"mode": mode})
        for mode in ("nearest", "linear", "cubic")
    ),
    "ReverseSequence": _one(_x(4, 4), _k([1, 2, 3, 4])),
    "RoiAlign": tuple(
        Usage(label, (_x(1, 3, 8, 8), _x(2, 4), _k([0, 0])),
             {"output_height": 2, "output_width": 2, "sampling_ratio": samples})
        for label, samples in (("a number of samples", 2), ("samples by size", 0))
    ),
    "RotaryEmbedding": _one(_x(2, 4, 8, 16), _x(2, 8, 8), _x(2, 8, 8)),
    "STFT": _one(_x(1, 16, 1), _k(4), _w(8)),
    "ScatterElements": _one(_x(8, 16), _x(2, 16, dtype="int64"), _x(2, 16)),
    "ScatterND": _one(_x(8, 16), _x(3, 1, dtype="int64"), _x(3, 16)),
    "Slice": _one(_x(8, 16), _k([1]), _k([7]), _k([0]), _k([2])),
    "Split": _one(_x(8, 16), outputs=2, num_outputs=2),
    "Squeeze": _one(_x(2, 1, 8), _k([1])),
    "TensorScatter": _one(_x(2, 4, 8, 16), _x(2, 4, 1, 16)),
    "TfIdfVectorizer": _one(_x(8), mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0,
                            ngram_counts=[0], ngram_indexes=[0, 1], pool_int64s=[2, 3]),
    "Tile": _one(_x(2, 8), _k([2, 3])),
    "TopK": _one(_x(4, 16), _k([3]), outputs=2),
    "Unsqueeze": _one(_x(2, 8), _k([1])),
    **{f"{LEARNED}.{op_type}": forms for op_type, forms in LEARNED_FORMS.items()},
}  # fmt: skip
"""The forms of operators that do not just take inputs of one shape."""


# -- what those of ONNX Runtime need -----------------------------------------------------------------------------------

_GPT_DECODER = """
decoder (int32[batch, length] input_ids, int32[batch, length] position_ids, int32[batch, total] attention_mask,
         FLOAT[2, batch, 1, past, 8] past_0)
     => (FLOAT[batch, length, 8] logits, FLOAT[2, batch, 1, total, 8] present_0) {
    logits = Gather(next, input_ids)
    axes = Constant <value_ints = [0, 2]> ()
    new = Unsqueeze(logits, axes)
    both = Concat <axis = 0> (new, new)
    present_0 = Concat <axis = 3> (past_0, both)
}
"""
_DECODER = """
decoder (int32[batch, 1] input_ids, MASK FLOAT[batch, 1, past, 8] past_key_self_0,
         FLOAT[batch, 1, past, 8] past_value_self_0, FLOAT[batch, 1, source, 8] past_key_cross_0,
         FLOAT[batch, 1, source, 8] past_value_cross_0)
     => (FLOAT[batch, 1, 8] logits, FLOAT[batch, 1, total, 8] present_key_self_0,
         FLOAT[batch, 1, total, 8] present_value_self_0) {
    logits = Gather(next, input_ids)
    axes = Constant <value_ints = [1]> ()
    new = Unsqueeze(logits, axes)
    present_key_self_0 = Concat <axis = 2> (past_key_self_0, new)
    present_value_self_0 = Concat <axis = 2> (past_value_self_0, new)
}
"""
_T5_ENCODER = """
encoder (int32[batch, source] encoder_input_ids, int32[batch, source] encoder_attention_mask)
     => (FLOAT[batch, 1, source, 8] present_key_cross_0, FLOAT[batch, 1, source, 8] present_value_cross_0) {
    states = Gather(next, encoder_input_ids)
    axes = Constant <value_ints = [1]> ()
    present_key_cross_0 = Unsqueeze(states, axes)
    present_value_cross_0 = Unsqueeze(states, axes)
}
"""
_WHISPER_ENCODER = """
encoder (FLOAT[batch, 4, frames] encoder_input_ids, int32[batch, begun] decoder_input_ids)
     => (FLOAT[batch, begun, 8] logits, FLOAT[batch, frames, 8] encoder_hidden_states,
         FLOAT[batch, 1, begun, 8] present_key_self_0, FLOAT[batch, 1, begun, 8] present_value_self_0,
         FLOAT[batch, 1, frames, 8] present_key_cross_0, FLOAT[batch, 1, frames, 8] present_value_cross_0) {
    frames = Transpose <perm = [0, 2, 1]> (encoder_input_ids)
    encoder_hidden_states = Concat <axis = 2> (frames, frames)
    logits = Gather(next, decoder_input_ids)
    axes = Constant <value_ints = [1]> ()
    present_key_self_0 = Unsqueeze(logits, axes)
    present_value_self_0 = Unsqueeze(logits, axes)
    present_key_cross_0 = Unsqueeze(encoder_hidden_states, axes)
    present_value_cross_0 = Unsqueeze(encoder_hidden_states, axes)
}
"""


class _Graph:
    """A graph, once the element type is known of its values and of its table of successors."""

    def __init__(self, text: str, mask: str = "") -> None:
        self.text = text.replace("MASK", mask)

    def __call__(self, dtype: str) -> onnx.GraphProto:
        graph = parser.parse_graph(self.text.replace("FLOAT", "float" if dtype == "float32" else dtype))
        graph.initializer.append(numpy_helper.from_array(np.eye(8, k=1, dtype=dtype), "next"))
        return graph


_ENDS = {"eos_token_id": 7, "pad_token_id": 0}
_STARTS = {**_ENDS, "decoder_start_token_id": 1}

GPT: dict[str, Any] = {**_ENDS, "decoder": _Graph(_GPT_DECODER)}
T5: dict[str, Any] = {
    **_STARTS,
    "model_type": 1,
    "encoder": _Graph(_T5_ENCODER),
    "decoder": _Graph(_DECODER, "int32[batch, source] encoder_attention_mask,"),
}
WHISPER: dict[str, Any] = {
    **_STARTS,
    "model_type": 2,
    "encoder": _Graph(_WHISPER_ENCODER),
    "decoder": _Graph(_DECODER),
    "no_timestamps_token_id": 2,
    "start_of_lm_token_id": 3,
    "translate_token_id": 4,
    "transcribe_token_id": 5,
    "beginning_timestamp_token_id": 6,
}

FLOATS = ("float16", "float32", "float64", "bfloat16")
UP_TO_32_BITS = ("float16", "float32", "bfloat16")
SEARCHED = ("float16", "float32")
BYTES = ("uint8", "int8")
MOVED = ("bool", "uint8", "uint32", "uint64", "int8", "int32", "int64", *FLOATS)


def _of(dtypes: tuple[str, ...], *inputs: ExampleOperand | None, outputs: int = 1, **attrs: Any) -> MicrosoftExamples:
    return MicrosoftExamples(dtypes, (Usage("", inputs, attrs, outputs),))


_ROWS, _WIDE = _x(2, 4, 16), _w(16)
_IDS = _x(2, 4, dtype="int32")
_IMAGE, _FILTERS = _x(1, 16, 8, 8), _w(16, 16, 3, 3)
_LAST = _x(1, 8, 8, 16)
_CONV: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
_POOLED: dict[str, Any] = {"kernel_shape": [2, 2]}
_BITS: dict[str, Any] = {"K": 32, "N": 16, "block_size": 32}
_PROMPT, _SOUND = _x(2, 3, dtype="int32"), _x(2, 4, 3)
_TURNS, _NONE, _BEAMS = (_w(1, dtype="int32", value=value) for value in (6, 0, 2))
_PENALTY = _w(1, dtype="float32")
_ROUTED = _x(4, 4)
_TOKEN, _KEYS = _x(2, 1, 16), _x(2, 2, 4, 8)

MICROSOFT_FORMS: Mapping[str, MicrosoftExamples] = {
    "Attention": _of(FLOATS, _ROWS, _w(16, 48), _w(48), num_heads=2),
    "BeamSearch": MicrosoftExamples(
        SEARCHED,
        (
            Usage("as GPT-2", (_PROMPT, _TURNS, _NONE, _BEAMS, _BEAMS, _PENALTY), GPT, 2),
            Usage("as T5", (_PROMPT, _TURNS, _NONE, _BEAMS, _BEAMS, _PENALTY), T5, 2),
        ),
    ),
    "BiasAdd": _of(FLOATS, _ROWS, _WIDE, _ROWS),
    **dict.fromkeys(("BiasGelu", "BiasSplitGelu", "FastGelu"), _of(FLOATS, _ROWS, _WIDE)),
    "BiasSoftmax": _of(FLOATS, _ROWS, _ROWS, axis=2, is_inner_broadcast=0),
    "BifurcationDetector": _of(("int64",), _x(4), _x(3), _x(), outputs=2),
    "BranchwiseRMSNorm": _of(FLOATS, _ROWS, _WIDE),
    "CDist": _of(FLOATS, _x(4, 16), _x(5, 16)),
    "CausalConvWithState": _of(FLOATS, _x(2, 16, 8), _w(16, 1, 3), outputs=2),
    **dict.fromkeys(("ComplexMul", "ComplexMulConj"), _of(FLOATS, _x(4, 2), _x(4, 2))),
    "CropAndResize": _of(FLOATS, _IMAGE, _x(2, 4), _w(2, dtype="int32", value=0), _w(2, dtype="int32", value=4)),
    "ConvTransposeWithDynamicPads": _of(FLOATS, _IMAGE, _FILTERS, _w(4, dtype="int64")),
    "WordConvEmbedding": _of(FLOATS, _x(3, 8, dtype="int32"), _w(5, 1, 3, 4), _w(5), _w(9, 4)),
    "MoE": _of(UP_TO_32_BITS, _x(4, 32), _ROUTED, _w(4, 32, 32), None, _w(4, 32, 32), k=2),
    "MoEGroupRouter": _of(FLOATS, _x(4, 16), _w(16, dtype="float32"), top_k=2, n_group=4, topk_group=2),
    "DecoderMaskedMultiHeadAttention": _of(FLOATS, _TOKEN, _TOKEN, _TOKEN, None, None, _KEYS, _KEYS,
                                            _w(1, dtype="int32"), num_heads=2, past_present_share_buffer=1, outputs=3),
    "DequantizeLinear": _of(("uint8", "int8", "uint16", "int16", "int32"), _ROWS, *_QUANTIZED),
    "QuantizeLinear": MicrosoftExamples(
        ("uint8", "int8", "uint16", "int16", "uint4", "int4"),
        (Usage("", (_x(2, 4, 16, dtype="float32"), *_QUANTIZED)),),
    ),
    "DynamicQuantizeLSTM": _of(("float32",), _x(5, 2, 16), _w(1, 16, 32, dtype="int8"), _w(1, 8, 32, dtype="int8"),
                                None, None, None, None, None, _w(1), _w(1, dtype="int8"), _w(1), _w(1, dtype="int8"),
                                hidden_size=8),
    "DynamicQuantizeMatMul": _of(("float32",), _ROWS, _w(16, 8, dtype="int8"), _w()),
    "DynamicTimeWarping": _of(("float32",), _x(4, 6)),
    "EmbedLayerNormalization": _of(FLOATS, _IDS, None, _w(9, 16), _w(9, 16), None, _WIDE, _WIDE, outputs=2),
    "EngramGate": _of(FLOATS, _x(2, 4, 3, 16), _x(2, 4, 3, 16), _ROWS, _w(3, 16), _w(3, 16)),
    "ExpandDims": _of(MOVED, _ROWS, _w(dtype="int32")),
    "FusedConv": _of(FLOATS, _IMAGE, _FILTERS, _WIDE, activation="Relu", **_CONV),
    "NhwcConv": _of(FLOATS, _LAST, _FILTERS, _WIDE, **_CONV),
    "NhwcFusedConv": _of(FLOATS, _LAST, _FILTERS, _WIDE, activation="Relu", **_CONV),
    "FusedGemm": _of(FLOATS, _x(4, 16), _w(16, 8), _w(8), activation="Relu"),
    **dict.fromkeys(("FusedMatMul", "TransposeMatMul"), _of(FLOATS, _ROWS, _w(16, 8), alpha=0.5)),
    "GatedAdd": _of(FLOATS, _ROWS, _ROWS, _x(2, 4, 1)),
    "GatedRMSNorm": _of(FLOATS, _ROWS, _WIDE, _ROWS),
    "GatherBlockQuantized": _of(("uint8", "uint4", "int4", "float8_e4m3fn", "float8_e5m2"), _w(8, 32),
                                 _x(2, dtype="int64"), _w(8, 2, dtype="float32"), block_size=16, bits=8),
    "GatedDeltaNet": _of(UP_TO_32_BITS, _x(2, 4, 2, 8), _x(2, 4, 2, 8), _x(2, 4, 2, 8), None,
                          _x(2, 4, 2, dtype="float32"), _x(2, 4, 2, dtype="float32"), outputs=2),
    "GatherND": _of(MOVED, _ROWS, _x(3, 1, dtype="int64")),
    **dict.fromkeys(("Gelu", "QuickGelu", "ScaledSiLU", "SampleOp"), _of(FLOATS, _ROWS)),
    "GemmFastGelu": _of(FLOATS, _ROWS, _w(16, 8), _w(8)),
    "GreedySearch": _of(SEARCHED, _PROMPT, _TURNS, **GPT),
    "GridSample": _of(FLOATS, _IMAGE, _x(1, 4, 4, 2)),
    "GroupNorm": _of(FLOATS, _LAST, _w(16, dtype="float32"), _w(16, dtype="float32"), groups=4, activation=1),
    "SkipGroupNorm": _of(FLOATS, _LAST, _w(16, dtype="float32"), _w(16, dtype="float32"), _LAST, groups=4,
                          activation=1, outputs=2),
    "GroupQueryAttention": _of(FLOATS, _ROWS, _x(2, 4, 8), _x(2, 4, 8), None, None, _x(2, dtype="int32"),
                                _w(dtype="int32", value=4), num_heads=4, kv_num_heads=2, outputs=3),
    "HyperConnectionPreMix": _of(FLOATS, _ROWS, _x(2, 4)),
    "HyperConnectionPostMix": _of(FLOATS, _ROWS, _x(2, 16), _x(2, 4)),
    "Inverse": _of(("float16", "float32", "float64"), _x(2, 4, 4)),
    "Irfft": _of(FLOATS, _x(2, 9, 2), signal_ndim=1),
    "Rfft": _of(FLOATS, _x(2, 16), signal_ndim=1),
    "IsAllFinite": _of(FLOATS, _ROWS),
    "LayerNormalization": _of(FLOATS, _ROWS, _WIDE, _WIDE),
    "SimplifiedLayerNormalization": _of(FLOATS, _ROWS, _WIDE),
    "SkipLayerNormalization": _of(FLOATS, _ROWS, _ROWS, _WIDE),
    "SkipSimplifiedLayerNormalization": _of(FLOATS, _ROWS, _ROWS, _WIDE),
    "LinearAttention": _of(UP_TO_32_BITS, _ROWS, _ROWS, _ROWS, outputs=2, q_num_heads=2, kv_num_heads=2,
                            update_rule="linear"),
    "LinearAttentionGate": _of(FLOATS, _ROWS, _w(16, dtype="float32"), _w(16, dtype="float32")),
    "MRotaryEmbedding": _of(FLOATS, _ROWS, _x(3, 2, 4, dtype="int64"), _w(9, 4), _w(9, 4), mrope_section=[2, 1, 1]),
    "RotaryEmbedding": _of(FLOATS, _ROWS, _x(2, 4, dtype="int64"), _w(9, 4), _w(9, 4)),
    "RelativePositionBias": _of(FLOATS, _w(32, 4), _w(1, dtype="int64", value=4), _w(1, dtype="int64", value=4),
                                 max_distance=128),
    "MatMulBnb4": _of(FLOATS, _x(4, 32), _w(256, dtype="uint8"), _w(16), quant_type=1, **_BITS),
    "MatMulInteger16": _of(("int16",), _ROWS, _w(16, 8)),
    "MatMulIntegerToFloat": _of(BYTES, _ROWS, _w(16, 8, dtype="int8"), _SCALE, _SCALE),
    "MatMulNBits": MicrosoftExamples(
        UP_TO_32_BITS,
        tuple(
            Usage(f"{bits} bits", (_x(4, 32), _w(16, 1, 4 * bits, dtype="uint8"), _w(16, 1)), {**_BITS, "bits": bits})
            for bits in (2, 4, 8)
        ),
    ),
    "MulInteger": _of(BYTES, _ROWS, _ZERO, _ROWS, _ZERO),
    "MultiHeadAttention": _of(FLOATS, _ROWS, _ROWS, _ROWS, num_heads=2),
    "MurmurHash3": _of(("uint32", "uint64", "int32", "int64", "float32", "float64"), _ROWS),
    "NGramHashMapping": _of(("int32", "int64"), _x(2, 8), _w(2), _w(2), max_ngram_size=2, n_head_per_ngram=2, pad_id=0),
    "NGramRepeatBlock": _of(FLOATS, _x(2, 8, dtype="int64"), _x(2, 16), ngram_size=2),
    "NhwcMaxPool": _of(BYTES, _LAST, **_POOLED),
    "Pad": _of(MOVED, _ROWS, _w(6, dtype="int64")),
    "QAttention": _of(BYTES, _x(2, 4, 16, dtype="uint8"), _w(16, 48), _w(48, dtype="float32"), _SCALE, _SCALE,
                       num_heads=2),
    "QEmbedLayerNormalization": _of(BYTES, _IDS, None, _w(9, 16), _w(9, 16), None, _WIDE, _WIDE, None, _SCALE, _SCALE,
                                     None, _SCALE, _SCALE, _ZERO, _ZERO, None, _ZERO, _ZERO, outputs=2),
    "QGemm": _of(BYTES, _x(4, 16), *_QUANTIZED, _w(16, 8, dtype="int8"), _SCALE, _w(dtype="int8"), None, *_QUANTIZED),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _of(BYTES, _ROWS, *_QUANTIZED, _ROWS, *_QUANTIZED, *_QUANTIZED)),
    "QLinearAveragePool": _of(BYTES, _IMAGE, *_QUANTIZED, *_QUANTIZED, **_POOLED),
    "QLinearConcat": _of(BYTES, *_QUANTIZED, _ROWS, *_QUANTIZED, _ROWS, *_QUANTIZED, axis=1),
    "QLinearConv": _of(BYTES, _IMAGE, *_QUANTIZED, _w(16, 16, 3, 3, dtype="int8"), _SCALE, _w(dtype="int8"),
                        *_QUANTIZED, channels_last=0),
    "QLinearGlobalAveragePool": _of(BYTES, _IMAGE, *_QUANTIZED, *_QUANTIZED),
    **dict.fromkeys(("QLinearLeakyRelu", "QLinearSigmoid"), _of(BYTES, _ROWS, *_QUANTIZED, *_QUANTIZED)),
    "QLinearMatMul": _of(BYTES, _ROWS, *_QUANTIZED, _w(16, 8, dtype="int8"), _SCALE, _w(dtype="int8"), *_QUANTIZED),
    "QLinearReduceMean": _of(BYTES, _ROWS, *_QUANTIZED, *_QUANTIZED, axes=[1], keepdims=1),
    "QLinearSoftmax": _of(BYTES, _ROWS, *_QUANTIZED, *_QUANTIZED, axis=-1, opset=13),
    "QLinearWhere": _of(BYTES, _x(2, 4, 16, dtype="bool"), _ROWS, *_QUANTIZED, _ROWS, *_QUANTIZED, *_QUANTIZED),
    "QMoE": MicrosoftExamples(
        UP_TO_32_BITS,
        tuple(
            Usage(f"{bits} bits", (_x(4, 32), _ROUTED, *(_w(4, 32, 4 * bits, dtype="uint8"), _w(4, 32), None) * 2),
                 {"k": 2, "expert_weight_bits": bits})
            for bits in (2, 4, 8)
        ),
    ),
    "Range": _of(("int16", "int32", "int64", "float32", "float64"), _w(value=0), _w(value=8)),
    "ReduceSumInteger": _of(BYTES, _ROWS, axes=[1], keepdims=1),
    "Sampling": _of(SEARCHED, _PROMPT, _TURNS, **GPT),
    "Tokenizer": _of((), _x(2, dtype="str")),
    "TorchEmbedding": _of(FLOATS, _w(9, 16), _x(4, dtype="int64")),
    "Trilu": _of(MOVED, _x(4, 4)),
    "UnfoldTensor": _of(MOVED, _x(2, 16), size=4, step=2),
    "Unique": _of(("float32",), _x(8), outputs=3),
    "VarlenCausalConvWithState": _of(UP_TO_32_BITS, _x(8, 16), _w(16, 1, 3), _x(3, dtype="int32"), None,
                                      _x(2, 16, 2), outputs=2),
    "VarlenNGramHashMapping": _of(("int32", "int64"), _x(8), _w(2), _w(2), _x(3, dtype="int32"), max_ngram_size=2,
                                   n_head_per_ngram=2, pad_id=0, outputs=2),
    "WhisperBeamSearch": _of(SEARCHED, _SOUND, _TURNS, _NONE, _BEAMS, _BEAMS, _PENALTY, outputs=2, **WHISPER),
    "com.microsoft.nchwc.Conv": _of(("float32",), _IMAGE, _FILTERS, _WIDE, **_CONV),
    **dict.fromkeys(
        ("com.microsoft.nchwc.AveragePool", "com.microsoft.nchwc.MaxPool"), _of(("float32",), _IMAGE, **_POOLED)
    ),
    **dict.fromkeys(
        ("com.microsoft.nchwc.GlobalAveragePool", "com.microsoft.nchwc.GlobalMaxPool"), _of(("float32",), _IMAGE)
    ),
    "com.microsoft.nchwc.ReorderInput": _of(("float32",), _IMAGE),
    "com.microsoft.nchwc.ReorderOutput": _of(("float32",), _IMAGE, channels=16),
    "com.microsoft.nchwc.Upsample": _of(("float32",), _IMAGE, scales=[1, 1, 2, 2]),
}  # fmt: skip
"""By an operator's type, with its domain if that is another one than ``com.microsoft``."""
