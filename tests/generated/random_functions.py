"""Random nodes of the operators that ONNX defines by others: attributes, element types, ranks, and what is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

from opbuild.dtypes import numpy_dtype
from opbuild.frontend.expansion import DECISIONS, OWN_FUNCTIONS
from opbuild.frontend.onnx_schemas import newest_of
from opbuild.graph.shape_rules import ONNX_NUMBERS
from opbuild.graph.types import DTYPES

Draw = random.Random

NO_NODES = {"SequenceMap": "its inputs are sequences, of which nothing is decided"}
"""Operators with a function of which no node is made, each with the reason."""

SCHEMAS: Mapping[tuple[str, str], Any] = {
    (each.domain, each.name): each
    for each in defs.get_all_schemas()
    if each.has_function or each.has_context_dependent_function or (each.domain, each.name) in OWN_FUNCTIONS
}
"""The newest schema of each operator that ONNX, or opbuild, defines by others."""

OPERATORS = sorted(name for name in SCHEMAS if name[1] not in NO_NODES)

DRAWN = [*OPERATORS, *3 * [name for name in OPERATORS if name in DECISIONS]]
"""What is drawn from: more of those for which it depends on the node."""

EXTENTS = (1, 1, 2, 3, 4, 8, 17)


@dataclass
class Input:
    """An input of a node.

    Attributes:
        shape: Its shape.
        dtype: Its element type, or some to draw one from; empty for one that the schema allows.
        value: Its contents, or the number that all its elements are, if it is known; None for ones.
        decides: Whether it is mostly known, as it says how large an output is.
    """

    shape: Sequence[int]
    dtype: str = ""
    value: Any = None
    decides: bool = False


@dataclass
class Made:
    """A node that is drawn: its inputs, None for an absent one, its attributes, and which outputs it has."""

    inputs: Sequence[Input | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: Sequence[bool] = (True,)


def model(seed: int) -> onnx.ModelProto:
    """Return the model of one node; seeds that follow each other are of different operators."""
    draw, name = Draw(seed), DRAWN[seed % len(DRAWN)]
    schema, made = SCHEMAS[name], _MAKERS[name[1]](draw)
    types = _Types(draw, schema)
    all_known = draw.random() < 0.04
    names, inputs, constants = [], [], []
    for place, each in enumerate(made.inputs):
        names.append("" if each is None else f"x{place}")
        if each is None:
            continue
        dtype = each.dtype or types.at(place)
        if all_known or draw.random() < (0.85 if each.decides else 0.25):
            contents = np.broadcast_to(np.asarray(1 if each.value is None else each.value), each.shape)
            constants.append(numpy_helper.from_array(contents.astype(numpy_dtype(dtype)), names[-1]))
        else:
            inputs.append(helper.make_tensor_value_info(names[-1], ONNX_NUMBERS[dtype], each.shape))
    outputs = [f"y{place}" if given else "" for place, given in enumerate(made.outputs)]
    node = helper.make_node(name[1], names, outputs, name="node", domain=name[0], **made.attrs)
    results = [helper.make_tensor_value_info(each, TensorProto.UNDEFINED, None) for each in outputs if each]
    graph = helper.make_graph([node], name[1], inputs, results, constants)
    versions = {"": defs.onnx_opset_version(), **({name[0]: newest_of(name[0])} if name[0] else {})}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in versions.items()])


class _Types:
    """The element type of each type parameter, drawn when the first input of it comes."""

    def __init__(self, draw: Draw, schema: Any) -> None:
        self._draw, self._schema = draw, schema
        self._drawn: dict[str, str] = {}

    def at(self, place: int) -> str:
        port = self._schema.inputs[min(place, len(self._schema.inputs) - 1)].type_str
        if port not in self._drawn:
            allowed = self._allowed(port)
            usual = "float32" in allowed and self._draw.random() < 0.35
            self._drawn[port] = "float32" if usual else self._draw.choice(allowed)
        return self._drawn[port]

    def _allowed(self, port: str) -> list[str]:
        constraints = {each.type_param_str: each.allowed_type_strs for each in self._schema.type_constraints}
        spelled = {each[len("tensor(") : -1] for each in constraints.get(port, [port]) if each.startswith("tensor(")}
        names = {{"float": "float32", "double": "float64"}.get(each, each) for each in spelled}
        return [each for each in DTYPES if each in names]


# -- what nodes are made of --------------------------------------------------------------------------------------------


def _shape(draw: Draw, least: int = 0, most: int = 5) -> tuple[int, ...]:
    shape = [draw.choice(EXTENTS) for _ in range(draw.randint(least, most))]
    if shape and draw.random() < 0.2:
        shape[draw.randrange(len(shape))] = 0
    return tuple(shape)


def _broadcast(draw: Draw, shape: Sequence[int]) -> tuple[int, ...]:
    found = tuple(1 if draw.random() < 0.3 else extent for extent in shape)
    return found[draw.randint(0, len(found)) :] if draw.random() < 0.4 else found


def _some(draw: Draw, **choices: Iterable[Any]) -> dict[str, Any]:
    """Return some attributes, each with one of its values."""
    return {name: draw.choice([*values]) for name, values in choices.items() if draw.random() < 0.6}


def _turned(draw: Draw, axes: Iterable[int], rank: int) -> list[int]:
    """Return axes, some of them counted from the end."""
    return [axis - rank if draw.random() < 0.5 else axis for axis in axes]


def _unary(**choices: Iterable[Any]) -> Callable[[Draw], Made]:
    return lambda draw: Made([Input(_shape(draw))], _some(draw, **choices))


def _binary(draw: Draw) -> Made:
    shape = _shape(draw)
    return Made([Input(shape), Input(_broadcast(draw, shape))])


def _gated(draw: Draw) -> Made:
    shape = _shape(draw)
    return Made([Input(shape), Input(shape)], _some(draw, alpha=(1.0, 1.702)))


def _clip(draw: Draw) -> Made:
    return Made([Input(_shape(draw)), draw.choice([None, Input(())]), draw.choice([None, Input(())])])


def _cast_like(draw: Draw) -> Made:
    return Made([Input(_shape(draw)), Input(_shape(draw))], _some(draw, saturate=(0, 1)))


def _reduction(draw: Draw) -> Made:
    shape = _shape(draw)
    axes = _turned(draw, draw.sample(range(len(shape)), draw.randint(0, len(shape))), len(shape))
    given = draw.choice([None, Input((len(axes),), "int64", axes, decides=True)])
    return Made([Input(shape), given], _some(draw, keepdims=(0, 1), noop_with_empty_axes=(0, 1)))


def _softmax(draw: Draw) -> Made:
    shape = _shape(draw, 1)
    return Made([Input(shape)], _some(draw, axis=range(-len(shape), len(shape))))


def _normalization(draw: Draw) -> Made:
    """A LayerNormalization, or without its statistics and bias an RMSNormalization."""
    shape = _shape(draw, 1)
    axis = draw.randrange(len(shape))
    row = shape[axis:]
    scale = row if draw.random() < 0.6 else _broadcast(draw, row)
    attrs = {"axis": axis - draw.choice((0, len(shape))), **_some(draw, epsilon=(1e-5, 1e-12, 0.0, 1.0))}
    attrs |= {"stash_type": draw.choice((1, 10, 11))} if draw.random() < 0.3 else {}
    size = draw.choice((1.0, 1.0, 1e30, 1e-30)) if draw.random() < 0.5 else 1.0
    return Made([Input(shape), Input(scale, value=size, decides=draw.random() < 0.5)], attrs)


def _layer(draw: Draw) -> Made:
    made = _normalization(draw)
    bias = draw.choice([None, made.inputs[1] and Input(made.inputs[1].shape)])
    outputs = draw.choice([(True,), (True, True, True), (True, True), (True, False, True)])
    return Made([*made.inputs, bias], made.attrs, outputs)


def _groups(draw: Draw) -> Made:
    shape = (draw.choice((1, 2)), draw.choice((1, 4, 8)), *_shape(draw, 0, 3))
    count = draw.choice([count for count in (1, 2, 4, 8) if shape[1] % count == 0])
    vector = Input((shape[1],))
    return Made([Input(shape), vector, vector], {"num_groups": count, **_some(draw, epsilon=(1e-5, 0.0))})


def _mean_variance(draw: Draw) -> Made:
    shape = _shape(draw, 1)
    return Made([Input(shape)], {"axes": sorted(draw.sample(range(len(shape)), draw.randint(1, len(shape))))})


def _space_and_depth(draw: Draw) -> Made:
    block = draw.choice((1, 2, 3))
    shape = (draw.choice((0, 1, 2)), draw.choice((1, 16)) * block**2, draw.choice((1, 4)) * block, 3 * block)
    return Made([Input(shape)], {"blocksize": block, **_some(draw, mode=("DCR", "CRD"))})


def _window(draw: Draw) -> Made:
    attrs = _some(draw, periodic=(0, 1), output_datatype=(1, 6, 7, 10, 11))
    return Made([Input((), value=draw.choice((0, 1, 5, 16)), decides=True)], attrs)


def _range(draw: Draw) -> Made:
    ends = (0, draw.choice((0, 1, 7, 100)), draw.choice((1, 2, 3)))
    return Made([Input((), value=each, decides=True) for each in ends], _some(draw, stash_type=(1,)))


def _affine_grid(draw: Draw) -> Made:
    rank, count = draw.choice((2, 3)), draw.choice((0, 1, 2))
    size = [count, 3, *(draw.choice((1, 1, 4, 4, 0)) for _ in range(rank))]
    inputs = [Input((count, rank, rank + 1)), Input((rank + 2,), "int64", size, decides=True)]
    return Made(inputs, _some(draw, align_corners=(0, 1)))


def _crop(draw: Draw) -> Made:
    shape = _shape(draw, 1)
    axes = sorted(draw.sample(range(len(shape)), draw.randint(1, len(shape))))
    wanted = Input((len(axes),), "int64", [draw.choice((0, *EXTENTS)) for _ in axes], decides=True)
    return Made([Input(shape), wanted], {"axes": _turned(draw, axes, len(shape))})


def _bernoulli(draw: Draw) -> Made:
    return Made([Input(_shape(draw))], _some(draw, seed=(1.0,), dtype=(1, 6, 7, 9, 10, 11)))


def _quantize(draw: Draw) -> Made:
    return Made([Input(_shape(draw))], {}, (True, True, True))


def _loss(draw: Draw) -> Made:
    count, classes = draw.choice((0, 1, 3)), draw.choice((1, 5))
    space = [draw.choice((0, 1, 2, 4, 4)) for _ in range(draw.randint(0, 3))]
    labels = Input((count, *space), draw.choice(("int32", "int64")), 0)
    weights = draw.choice([None, Input((classes,))])
    attrs = _some(draw, reduction=("none", "sum", "mean"), ignore_index=(-100, -1, 0, 2))
    return Made([Input((count, classes, *space)), labels, weights], attrs)


def _softmax_loss(draw: Draw) -> Made:
    made = _loss(draw)
    return Made(made.inputs, made.attrs, draw.choice([(True,), (True, True), (False, True)]))


def _rotary(draw: Draw) -> Made:
    batch, heads, length, size = draw.choice((0, 1, 2)), draw.choice((1, 2, 3)), draw.choice((0, 1, 5)), 8
    turned = draw.choice((0, 0, 4))
    is_flat = draw.random() < 0.4
    attrs = {**_some(draw, interleaved=(0, 1)), **({"rotary_embedding_dim": turned} if turned else {})}
    attrs |= {"num_heads": heads} if is_flat or draw.random() < 0.3 else {}
    half = (turned or size) // 2
    x = Input((batch, length, heads * size) if is_flat else (batch, heads, length, size))
    if draw.random() < 0.5:
        return Made([x, Input((20, half)), Input((20, half)), Input((batch, length), "int64", 1)], attrs)
    return Made([x, Input((batch, length, half)), Input((batch, length, half))], attrs)


def _attention(draw: Draw) -> Made:
    batch, heads = draw.choice((0, 1, 2, 2)), draw.choice((1, 2))
    queries, keys, past = draw.choice((0, 1, 3, 3)), draw.choice((0, 1, 4, 4)), draw.choice((None, None, 0, 2))
    each, other, groups = 4, draw.choice((4, 6)), draw.choice((1, 1, 2))
    attrs = _some(draw, is_causal=(0, 1), scale=(0.5,), softcap=(0.0, 2.0), softmax_precision=(1, 10, 11, 16))
    attrs |= {
        side: draw.choice((-1, 0, 2)) for side in ("left_window_size", "right_window_size") if draw.random() < 0.1
    }
    if draw.random() < 0.4:
        attrs |= {"q_num_heads": heads * groups, "kv_num_heads": heads}
        widths = ((queries, heads * groups * each), (keys, heads * each), (keys, heads * other))
        inputs: list[Input | None] = [Input((batch, *each)) for each in widths]
    else:
        shapes = ((heads * groups, queries, each), (heads, keys, each), (heads, keys, other))
        inputs = [Input((batch, *each)) for each in shapes]
    total = keys + (past or 0)
    masks = ((queries, total), (batch, heads * groups, queries, total), (batch, 1, queries, total), (1, total))
    inputs.append(draw.choice([None, Input(draw.choice(masks), draw.choice(("bool", "float32")))]))
    if past is not None:
        inputs += [Input((batch, heads, past, each)), Input((batch, heads, past, other))]
    some = [(True,), (True, True, True), (True, False, False, True)]
    outputs = draw.choice(some if past is None else [(True, True, True), (True,) * 4])
    return Made(inputs, attrs, outputs)


def _flex_attention(draw: Draw) -> Made:
    batch, heads, queries, keys = (draw.choice((1, 2)), 2, draw.choice((0, 1, 3)), draw.choice((0, 1, 4)))
    inputs = [Input((batch, heads * draw.choice((1, 2)), queries, 4)), *(Input((batch, heads, keys, 4)),) * 2]
    return Made(inputs, _some(draw, scale=(0.5,), softmax_precision=(1, 10, 11)))


def _linear_attention(draw: Draw) -> Made:
    batch, length, heads, groups = draw.choice((0, 1, 2)), draw.choice((0, 1, 3)), draw.choice((1, 2)), 2
    rule = draw.choice(("linear", "gated", "delta", "gated_delta"))
    attrs = {"q_num_heads": heads * groups, "kv_num_heads": heads, "update_rule": rule, **_some(draw, scale=(0.5,))}
    inputs: list[Input | None] = [Input((batch, length, count * 4)) for count in (heads * groups, heads, heads)]
    inputs.append(draw.choice([None, Input((batch, heads, 4, 4))]))
    inputs.append(Input((batch, length, heads)) if "gated" in rule else None)
    inputs.append(Input((batch, length, heads)) if "delta" in rule else None)
    return Made(inputs, attrs, (True, True))


def _causal_convolution(draw: Draw) -> Made:
    batch, channels, length, taps = draw.choice((0, 1, 2)), draw.choice((1, 4)), draw.choice((0, 1, 8)), 3
    more = [draw.choice([None, Input(shape)]) for shape in ((channels,), (batch, channels, taps - 1))]
    inputs = [Input((batch, channels, length)), Input((channels, 1, taps)), *more]
    return Made(inputs, _some(draw, activation=("none", "silu", "swish")), (True, True))


def _optimizer(kinds: int, **attrs: Any) -> Callable[[Draw], Made]:
    def make(draw: Draw) -> Made:
        shapes = [_shape(draw, 0, 3) for _ in range(draw.choice((1, 1, 2)))]
        tensors = [Input(shape) for _ in range(kinds) for shape in shapes]
        return Made([Input(()), Input((), "int64"), *tensors], attrs, (True,) * (len(shapes) * (kinds - 1)))

    return make


_MAKERS: Mapping[str, Callable[[Draw], Made]] = {
    **dict.fromkeys(("HardSwish", "Mish", "Relu", "Softplus", "Softsign"), _unary()),
    **dict.fromkeys(("Celu", "Elu", "LeakyRelu", "Swish", "ThresholdedRelu"), _unary(alpha=(0.0, 0.25, 1.0, -1.0))),
    **dict.fromkeys(("GreaterOrEqual", "LessOrEqual", "PRelu"), _binary),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), _window),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"), _reduction),
    **dict.fromkeys(("LogSoftmax", "Softmax"), _softmax),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _space_and_depth),
    "Adagrad": _optimizer(3),
    "Adam": _optimizer(4, alpha=0.9),
    "AffineGrid": _affine_grid,
    "Attention": _attention,
    "Bernoulli": _bernoulli,
    "CastLike": _cast_like,
    "CausalConvWithState": _causal_convolution,
    "CenterCropPad": _crop,
    "Clip": _clip,
    "DynamicQuantizeLinear": _quantize,
    "FlexAttention": _flex_attention,
    "Gelu": _unary(approximate=("none", "tanh")),
    "GroupNormalization": _groups,
    "HardSigmoid": _unary(alpha=(0.0, 0.2), beta=(0.0, 0.5)),
    "LayerNormalization": _layer,
    "LinearAttention": _linear_attention,
    "MeanVarianceNormalization": _mean_variance,
    "Momentum": _optimizer(3, alpha=0.9, beta=0.9, norm_coefficient=0.0, mode="nesterov"),
    "NegativeLogLikelihoodLoss": _loss,
    "RMSNormalization": _normalization,
    "Range": _range,
    "RotaryEmbedding": _rotary,
    "Selu": _unary(alpha=(0.0, 1.0), gamma=(1.0, 2.0)),
    "Shrink": _unary(bias=(0.0, 0.25, 1.0), lambd=(0.0, 1.0, -1.0)),
    "SoftmaxCrossEntropyLoss": _softmax_loss,
    "SwiGLU": _gated,
}
"""What draws a node of an operator, by its type."""
