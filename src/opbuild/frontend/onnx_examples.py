"""A small model of each ONNX operator, by which is asked what becomes of it: nothing here says what does.

Most operators take their required inputs, all of one shape; ``FORMS`` has what others need, and the forms of an
operator that may be served differently. Element types come from ONNX's own definitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

from opbuild.frontend.learned_examples import LEARNED_FORMS
from opbuild.frontend.operator_examples import Example, Form, Operand, model_of
from opbuild.frontend.operator_examples import given as _x
from opbuild.frontend.operator_examples import known as _w
from opbuild.frontend.rewritten import LEARNED
from opbuild.graph.shape_rules import ONNX_NUMBERS
from opbuild.graph.types import DTYPES

_SPELLED = {"float": "float32", "double": "float64"}
_PREFERRED = ("float32", "int64", "int32", "bool", "uint8")


def operator_types(domain: str = "") -> tuple[str, ...]:
    """Return the operators of ONNX's domain or of ``ai.onnx.ml``, sorted; the latter with the domain before them."""
    return tuple(sorted(name for name, schema in _schemas().items() if schema.domain == domain))


def examples(name: str) -> Iterator[Example]:
    """Yield models of an operator: one for each form and element type."""
    schema = _schemas()[name]
    main, dtypes = _main_type(schema)
    if any(not _dtypes(schema, port.type_str) for port in schema.inputs[: schema.min_input]):
        dtypes = ()
    for form in FORMS.get(name) or (_usual(schema),):
        if not dtypes:
            yield Example(name, form.label, "", None)
        for dtype in dtypes:
            yield Example(name, form.label, dtype, _model(schema, form, main, dtype))


@lru_cache(maxsize=1)
def _schemas() -> Mapping[str, Any]:
    """Return the newest schema of each operator; one of ONNX's own that is deprecated is left out."""
    found = {each.name: each for each in defs.get_all_schemas() if not each.domain and not each.deprecated}
    every = sorted(defs.get_all_schemas_with_history(), key=lambda each: each.since_version)
    learned = (each for each in every if each.domain == LEARNED and not each.deprecated)
    return found | {f"{LEARNED}.{each.name}": each for each in learned}


def _model(schema: Any, form: Form, main: str, dtype: str) -> onnx.ModelProto:
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


def _usual(schema: Any) -> Form:
    """Return the form of an operator that takes its required inputs, all of one shape."""
    variadic = schema.inputs and schema.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic
    return Form("", (Operand(SHAPE),) * max(schema.min_input, min(schema.max_input, 2) if variadic else 0))


def _type_of(schema: Any, port: str, main: str, dtype: str) -> str:
    """Return the element type of an input: what is asked about, or what most models have there."""
    if port == main:
        return dtype
    allowed = _dtypes(schema, port)
    return dtype if dtype in allowed else next((each for each in _PREFERRED if each in allowed), dtype)


# -- what operators need -----------------------------------------------------------------------------------------------

SHAPE = (2, 16, 8, 8)


def _k(value: Any, dtype: str = "int64") -> Operand:
    """Return an input of known contents."""
    contents = np.asarray(value, dtype or None)
    return Operand(contents.shape, dtype, contents)


def _one(*inputs: Operand | None, outputs: int = 1, **attrs: Any) -> tuple[Form, ...]:
    return (Form("", inputs, attrs, outputs),)


def _spatial(*more: int, weights: bool = False, **attrs: Any) -> tuple[Form, ...]:
    """Return the forms with one, two and three spatial dimensions."""
    return tuple(
        Form(
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


def _other(dtype: str) -> int:
    """Return another type than the one asked about, to cast to."""
    return int(TensorProto.FLOAT if dtype != "float32" else TensorProto.INT32)


_ROWS = _x(4, 16)
_QUANTIZED = (_w(dtype="float32"), _w())

_MAIN: Mapping[str, str] = {
    **dict.fromkeys(("Attention", "CastLike", "DequantizeLinear", "GridSample", "QuantizeLinear"), "T1"),
    **dict.fromkeys(("If", "Loop", "Scan"), "V"),
}
"""The type parameter that is asked about, where it is not the one that allows most types."""

_REDUCED = (Form("all axes", (_x(*SHAPE),)), Form("some axes", (_x(*SHAPE), _k([2, 3]))))

FORMS: Mapping[str, tuple[Form, ...]] = {
    **{
        f"Reduce{name}": _REDUCED
        for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _spatial(kernel_shape=lambda rank: [2] * rank)),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), _spatial()),
    **dict.fromkeys(("Conv", "ConvTranspose"), _spatial(weights=True)),
    "AffineGrid": _one(_x(2, 2, 3), _k([2, 3, 8, 8])),
    "Attention": _one(_x(2, 4, 8, 16), _x(2, 4, 8, 16), _x(2, 4, 8, 16)),
    "BatchNormalization": _one(_x(*SHAPE), _w(16), _w(16), _w(16), _w(16)),
    "BitCast": _one(_x(*SHAPE), to=lambda dtype: ONNX_NUMBERS[dtype]),
    "BitShift": _one(_x(*SHAPE), _x(*SHAPE), direction="LEFT"),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), _one(_w())),
    "Cast": _one(_x(*SHAPE), to=_other),
    "CastLike": _one(_x(*SHAPE), _x(dtype="float32")),
    "CausalConvWithState": _one(_x(2, 16, 8), _w(16, 1, 3), outputs=2),
    "CenterCropPad": _one(_x(8, 8), _k([4, 10])),
    "Clip": _one(_x(*SHAPE), _w(), _w()),
    "Col2Im": _one(_x(1, 12, 16), _k([5, 5]), _k([2, 2])),
    "Compress": _one(_x(8, 16), _k([True, False, True], "bool"), axis=0),
    "Concat": _one(_x(*SHAPE), _x(*SHAPE), axis=1),
    "Constant": _one(value=lambda dtype: numpy_helper.from_array(np.zeros(3, dtype))),
    "ConstantOfShape": _one(_k([2, 3]), value=lambda dtype: numpy_helper.from_array(np.zeros(1, dtype))),
    "ConvInteger": _one(_x(2, 16, 8, 8), _w(16, 16, 3, 3)),
    **dict.fromkeys(("CumProd", "CumSum"), _one(_ROWS, _k(1))),
    "DFT": _one(_x(2, 16, 1), None, _k(1)),
    "DeformConv": _one(_x(1, 2, 5, 5), _w(2, 2, 2, 2), _x(1, 8, 4, 4)),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _one(_x(*SHAPE), blocksize=2)),
    "DequantizeLinear": _one(_x(*SHAPE), *_QUANTIZED),
    "QuantizeLinear": _one(_x(*SHAPE), _w(), _w(dtype="uint8")),
    "DynamicQuantizeLinear": _one(_x(*SHAPE), outputs=3),
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
    "Gemm": _one(_ROWS, _w(16, 32), _w(32)),
    "GridSample": _one(_x(2, 3, 8, 8), _x(2, 4, 4, 2)),
    "GroupNormalization": _one(_x(*SHAPE), _w(16), _w(16), num_groups=4),
    "InstanceNormalization": _one(_x(*SHAPE), _w(16), _w(16)),
    "ImageDecoder": _one(_x(64)),
    "Optional": _one(_x(*SHAPE)),
    "If": _one(_x(dtype="bool"), then_branch=_branch, else_branch=_branch),
    "Loop": (Form("known inputs", (_k(3), _k(True, "bool"), _w(4)), {"body": _body}),
             Form("others", (_k(3), _k(True, "bool"), _x(4)), {"body": _body})),
    "Scan": _one(_x(3, 4), body=_step, num_scan_inputs=1),
    "LRN": _one(_x(*SHAPE), size=5),
    "LayerNormalization": _one(_ROWS, _w(16), _w(16)),
    "RMSNormalization": _one(_ROWS, _w(16)),
    "LinearAttention": _one(_x(2, 4, 16), _x(2, 4, 16), _x(2, 4, 16), outputs=2, q_num_heads=2, kv_num_heads=2,
                            update_rule="linear"),
    "MatMul": (Form("known matrix", (_ROWS, _w(16, 32))), Form("two inputs", (_x(2, 4, 16), _x(2, 16, 8)))),
    "MatMulInteger": _one(_ROWS, _w(16, 32)),
    "MaxRoiPool": _one(_x(1, 3, 8, 8), _k([[0, 0, 0, 4, 4]], ""), pooled_shape=[2, 2]),
    "MaxUnpool": _one(_x(1, 1, 2, 2), _x(1, 1, 2, 2, dtype="int64"), kernel_shape=[2, 2], strides=[2, 2]),
    "MelWeightMatrix": _one(_k(8), _k(16), _k(8192), _w(dtype="float32"), _k(4096.0, "float32")),
    "Multinomial": _one(_x(2, 8)),
    **dict.fromkeys(
        ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _one(_x(4, 16), _x(4, dtype="int64"))
    ),
    "NonMaxSuppression": _one(_x(1, 8, 4), _x(1, 1, 8)),
    "OneHot": _one(_x(4, dtype="int64"), _k(10), _x(2)),
    "PRelu": _one(_x(*SHAPE), _w(16, 1, 1)),
    "Pad": tuple(
        Form(mode, (_x(*SHAPE), _k([0, 0, 1, 1, 0, 0, 1, 1])), {"mode": mode})
        for mode in ("constant", "reflect", "edge", "wrap")
    ),
    "QLinearConv": _one(_x(2, 16, 8, 8), _w(dtype="float32"), _w(), _w(16, 16, 3, 3), _w(dtype="float32"), _w(),
                        _w(dtype="float32"), _w()),
    "QLinearMatMul": _one(_ROWS, _w(dtype="float32"), _w(), _w(16, 32), _w(dtype="float32"), _w(),
                          _w(dtype="float32"), _w()),
    **dict.fromkeys(("RandomNormal", "RandomUniform"), _one(shape=[2, 3], dtype=lambda dtype: ONNX_NUMBERS[dtype])),
    "Range": _one(_k(0, ""), _k(8, ""), _k(1, "")),
    "Reshape": _one(_x(*SHAPE), _k([2, -1])),
    "Resize": tuple(
        Form(mode, (_x(*SHAPE), None, _k([1, 1, 2, 2], "float32")), {"mode": mode})
        for mode in ("nearest", "linear", "cubic")
    ),
    "ReverseSequence": _one(_x(4, 4), _k([1, 2, 3, 4])),
    "RoiAlign": tuple(
        Form(label, (_x(1, 3, 8, 8), _x(2, 4), _k([0, 0])),
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
    "TfIdfVectorizer": _one(_x(8), mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0, ngram_counts=[0],
                            ngram_indexes=[0, 1], pool_int64s=[2, 3]),
    "Tile": _one(_x(2, 8), _k([2, 3])),
    "TopK": _one(_x(4, 16), _k([3]), outputs=2),
    "Unsqueeze": _one(_x(2, 8), _k([1])),
    **{f"{LEARNED}.{op_type}": forms for op_type, forms in LEARNED_FORMS.items()},
}  # fmt: skip
"""The forms of operators that do not just take inputs of one shape."""
