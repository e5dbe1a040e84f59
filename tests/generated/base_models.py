"""Valid models to begin from: small networks as exporters write them, and the one-node models that come with onnx."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
node = helper.make_node


class Base(NamedTuple):
    """A valid model with inputs that it takes."""

    name: str
    model: onnx.ModelProto
    feeds: dict[str, Array]


QUICK = (
    "abs", "batch_normalization", "cast", "clip", "concat", "constantofshape", "conv", "convtranspose", "div",
    "elu", "expand", "flatten", "gather", "gemm", "globalaveragepool", "if_", "layernormalization", "loop",
    "matmul", "pad", "prelu", "reducesum", "reshape", "resize", "slice", "softmax", "split", "squeeze",
    "tile", "topk", "transpose", "unsqueeze", "where",
)  # fmt: skip
"""Modules of onnx's node cases that import quickly; all of them take eight seconds."""


@cache
def quick_models() -> tuple[Base, ...]:
    """Return the small networks, and one-node models of common operators."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in QUICK:
            importlib.import_module(f"onnx.backend.test.case.node.{name}")
        from onnx.backend.test.case.node import _NodeTestCases

    found = [(case.name, case.model, case.data_sets[0][0]) for case in _NodeTestCases]
    return (*small_networks(), *_from_cases(found))


@cache
def all_models() -> tuple[Base, ...]:
    """Return the small networks, searches and experts, and all one-node models of onnx whose inputs are tensors."""
    from conformance.cases import cases
    from generated.random_experts import random_experts
    from generated.random_searches import random_search

    found = ((case.name, case.model, case.data[0][0]) for case in cases(("node",)))
    made = [("search", *random_search(seed)[:2]) for seed in range(12)]
    made += [("experts", each.given, each.feeds) for each in map(random_experts, range(8))]
    return (*small_networks(), *(Base(*each) for each in made), *_from_cases(found))


def _from_cases(cases: Iterable[tuple[str, onnx.ModelProto, Sequence[Any]]]) -> list[Base]:
    found = []
    for case, model, given in cases:
        values = [numpy_helper.to_array(v) if isinstance(v, TensorProto) else v for v in given]
        names = [value.name for value in model.graph.input]
        if all(isinstance(value, (np.ndarray, np.generic)) and value.size < 200_000 for value in values):
            feeds = {name: np.asarray(value) for name, value in zip(names, values, strict=True)}
            found.append(Base(case, model, feeds))
    return found


def make(
    name: str,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Array],
    outputs: list[str],
    known: dict[str, Any],
    **more: Any,
) -> Base:
    """Return a model of nodes; ``known`` are its constants."""
    graph = helper.make_graph(
        nodes,
        name,
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(np.asarray(array), n) for n, array in known.items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=9, **more))
    return Base(name, model, inputs)


def _numbers(*shape: int) -> Array:
    count = int(np.prod(shape))
    return (np.sin(np.arange(count) * 1.7) * 0.9).reshape(shape).astype(np.float32)


@cache
def small_networks() -> tuple[Base, ...]:
    """Return networks of a few nodes with the structures that real ones have."""
    return (_convolutions(), _residual(), _attention(), _layer_norm(), _shapes(), _branches(), _called(), _integers())


def _convolutions() -> Base:
    parts = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"], epsilon=1e-3),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["m"], ["a"]),
        node("Flatten", ["a"], ["f"], axis=1),
        node("Gemm", ["f", "g", "h"], ["l"], transB=1, alpha=0.5),
        node("Softmax", ["l"], ["y"], axis=-1),
    ]
    channels = {name: np.abs(_numbers(8)) + 0.5 for name in ("scale", "shift", "mean", "variance")}
    known = {"w": _numbers(8, 3, 3, 3), "b": _numbers(8), "g": _numbers(5, 8), "h": _numbers(5), **channels}
    return make("convolutions", parts, {"x": _numbers(1, 3, 16, 16)}, ["y"], known)


def _residual() -> Base:
    parts = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], group=2),
        node("Add", ["c", "x"], ["s"]),
        node("LeakyRelu", ["s"], ["r"], alpha=0.1),
        node("Concat", ["r", "x"], ["j"], axis=1),
        node("Transpose", ["j"], ["t"], perm=[0, 2, 3, 1]),
        node("AveragePool", ["j"], ["p"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        node("Clip", ["p", "low", "high"], ["y"]),
    ]
    known = {"w": _numbers(8, 4, 3, 3), "low": np.float32(-0.5), "high": np.float32(0.5)}
    return make("residual", parts, {"x": _numbers(2, 8, 6, 5)}, ["y", "t"], known)


def _attention() -> Base:
    parts = [
        node("MatMul", ["x", "w"], ["q"]),
        node("Reshape", ["q", "heads"], ["h"]),
        node("Transpose", ["h"], ["a"], perm=[0, 2, 1, 3]),
        node("Transpose", ["h"], ["b"], perm=[0, 2, 3, 1]),
        node("MatMul", ["a", "b"], ["s"]),
        node("Div", ["s", "root"], ["d"]),
        node("Softmax", ["d"], ["p"], axis=-1),
        node("MatMul", ["p", "a"], ["o"]),
        node("Transpose", ["o"], ["v"], perm=[0, 2, 1, 3]),
        node("Reshape", ["v", "flat"], ["y"]),
    ]
    known = {
        "w": _numbers(8, 8), "heads": np.int64([0, 0, 2, 4]), "flat": np.int64([0, 0, -1]), "root": np.float32(2)
    }  # fmt: skip
    return make("attention", parts, {"x": _numbers(1, 6, 8)}, ["y"], known)


def _layer_norm() -> Base:
    parts = [
        node("ReduceMean", ["x", "axes"], ["m"], keepdims=1),
        node("Sub", ["x", "m"], ["c"]),
        node("Pow", ["c", "two"], ["q"]),
        node("ReduceMean", ["q", "axes"], ["v"], keepdims=1),
        node("Add", ["v", "small"], ["e"]),
        node("Sqrt", ["e"], ["d"]),
        node("Div", ["c", "d"], ["n"]),
        node("Mul", ["n", "scale"], ["k"]),
        node("Add", ["k", "shift"], ["l"]),
        node("Gelu", ["l"], ["y"]),
    ]
    known = {
        "axes": np.int64([-1]), "two": np.float32(2), "small": np.float32(1e-5), "scale": _numbers(8),
        "shift": _numbers(8),
    }  # fmt: skip
    return make("layer norm", parts, {"x": _numbers(2, 3, 8)}, ["y"], known)


def _shapes() -> Base:
    parts = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "first"], ["u"]),
        node("Concat", ["u", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["f"]),
        node("Slice", ["f", "b", "e"], ["p"]),
        node("ConstantOfShape", ["t2"], ["z"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0.5])),
        node("Expand", ["p", "wide"], ["q"]),
        node("Add", ["q", "z"], ["r"]),
        node("Pad", ["r", "pads"], ["o"]),
        node("Tile", ["o", "repeats"], ["g"]),
        node("Range", ["from", "to", "step"], ["k"]),
        node("Add", ["g", "k"], ["y"]),
    ]
    known = {
        "zero": np.int64(0), "first": np.int64([0]), "rest": np.int64([-1]), "b": np.int64([0, 1]),
        "e": np.int64([2, 5]), "t2": np.int64([3, 2, 4]), "wide": np.int64([3, 2, 4]),
        "pads": np.int64([0, 0, 1, 0, 0, 1]), "repeats": np.int64([1, 2, 1]), "from": np.float32(0),
        "to": np.float32(6), "step": np.float32(1),
    }  # fmt: skip
    return make("shapes", parts, {"x": _numbers(2, 3, 4)}, ["y"], known)


def _graph(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    results = [helper.make_empty_tensor_value_info(each) for each in nodes[-1].output]
    return helper.make_graph(list(nodes), name, [], results)


def _branches() -> Base:
    parts = [
        node("If", ["yes"], ["a"], then_branch=_graph("then", node("Relu", ["x"], ["t"])),
             else_branch=_graph("else", node("Neg", ["x"], ["f"]))),
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["known"]),
        node("If", ["known"], ["y"], then_branch=_graph("then", node("Exp", ["a"], ["t2"])),
             else_branch=_graph("else", node("Abs", ["a"], ["f2"]))),
    ]  # fmt: skip
    known = {"yes": np.bool_(True), "zero": np.float32(0)}
    return make("branches", parts, {"x": _numbers(2, 3)}, ["y"], known)


def _called() -> Base:
    opsets = [helper.make_opsetid("", 20)]
    square = helper.make_function("own", "Square", ["i"], ["o"], [node("Mul", ["i", "i"], ["o"])], opsets)
    nodes = [node("Square", ["i"], ["s"], domain="own"), node("Tanh", ["s"], ["o"])]
    outer = helper.make_function("own", "Both", ["i"], ["o"], nodes, [*opsets, helper.make_opsetid("own", 1)])
    parts = [
        node("Both", ["x"], ["a"], domain="own"),
        node("Dropout", ["a"], ["d"]),
        node("Identity", ["d"], ["e"]),
        node("Square", ["e"], ["y"], domain="own"),
    ]
    return make("called", parts, {"x": _numbers(3, 5)}, ["y", "e"], {}, functions=[square, outer])


def _integers() -> Base:
    parts = [
        node("Gather", ["table", "i"], ["e"], axis=0),
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["f", "last"], ["u"]),
        node("Mul", ["e", "u"], ["m"]),
        node("ArgMax", ["m"], ["k"], axis=-1, keepdims=0),
        node("Add", ["k", "i"], ["s"]),
        node("Mod", ["s", "seven"], ["r"]),
        node("Equal", ["r", "i"], ["q"]),
        node("Where", ["q", "r", "i"], ["y"]),
        node("Split", ["m"], ["left", "right"], axis=-1, num_outputs=2),
    ]
    known = {"table": _numbers(10, 6), "last": np.int64([-1]), "seven": np.int64(7)}
    return make("integers", parts, {"i": np.int64([[1, 2, 3], [7, 8, 9]])}, ["y", "left", "right"], known)
