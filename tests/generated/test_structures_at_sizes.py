"""Real structures at many sizes: few programs serve them all, since none is of exactly one size."""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from generated.opened import record_of
from opbuild.backend.evaluate import evaluate
from opbuild.frontend.onnx_model import OnnxModel, load_model
from opbuild.graph.types import Graph
from opbuild.lowering.context import Options
from opbuild.pipeline.steps import optimize_graph
from opbuild.runtime.network import Shapes
from opbuild.runtime.record import Record
from opbuild.runtime.symbolic import numbers_of
from opbuild.target.level import LEVELS
from support.lowered import lower_open

SIZES, MOST = 8, 3
VERSIONS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]


def programs(model: OnnxModel, declared: tuple[int, ...], sizes: list[tuple[int, ...]]) -> list[Record]:
    """Return the records that serve sizes that come in this order."""
    made: list[Record] = []

    def graph(shapes: Shapes) -> Graph:
        return optimize_graph(model.bind({"x": shapes[0]}, evaluate))

    for size in sizes:
        if all(numbers_of(each, (size,)) is None for each in made):
            made.append(record_of(lower_open(graph, [declared], (size,), LEVELS[-1], Options())))
    return made


def network(nodes: list[onnx.NodeProto], shape: tuple[str | int, ...], **constants: object) -> OnnxModel:
    """Return a model of these nodes from ``x`` to ``y``."""
    graph = helper.make_graph(
        nodes,
        "structure",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=VERSIONS, ir_version=10)
    return load_model(made.SerializeToString())


def weights(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return weights, which no program depends on."""
    return np.ones(shape, np.float32)


def strided() -> OnnxModel:
    """Strided convolutions and pools, with and without padding, that lose what is left over."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("AveragePool", ["c"], ["d"], kernel_shape=[3, 2], pads=[1, 0, 1, 0], strides=[1, 2]),
        helper.make_node("Conv", ["d", "v"], ["y"], kernel_shape=[1, 3], pads=[0, 1, 0, 1]),
    ]
    return network(nodes, (1, 3, 48, "w"), w=weights(16, 3, 3, 3), v=weights(16, 16, 1, 3))


def narrow_heads() -> OnnxModel:
    """Attention whose heads are narrower than a vector: the right operand of its first product is copied."""
    nodes = [
        helper.make_node("Reshape", ["x", "heads"], ["a"]),
        helper.make_node("Transpose", ["a"], ["q"], perm=[0, 2, 1, 3]),
        helper.make_node("Transpose", ["a"], ["k"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Tanh", ["s"], ["t"]),
        helper.make_node("MatMul", ["t", "q"], ["y"]),
    ]
    return network(nodes, (1, "w", 24), heads=np.array([0, 0, 3, 8]))


def enlarged() -> OnnxModel:
    """A pyramid: a value is repeated, by scales and by an extent twice as large, and added to a larger one."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], kernel_shape=[1, 2], strides=[1, 2]),
        helper.make_node("Resize", ["a", "", "scales"], ["b"], mode="nearest", nearest_mode="floor",
                         coordinate_transformation_mode="asymmetric"),
        helper.make_node("Shape", ["b"], ["shape"]),
        helper.make_node("Mul", ["shape", "factors"], ["sizes"]),
        helper.make_node("Resize", ["b", "", "", "sizes"], ["y"], mode="nearest"),
    ]  # fmt: skip
    scales, factors = np.array([1, 1, 1, 2], np.float32), np.array([1, 1, 2, 2])
    return network(nodes, (1, 3, 4, "w"), w=weights(16, 3, 1, 2), scales=scales, factors=factors)


def causal() -> OnnxModel:
    """Causal attention of ``com.microsoft``, which says nothing of lengths."""
    attrs = {"num_heads": 2, "unidirectional": 1}
    nodes = [helper.make_node("MultiHeadAttention", ["x", "x", "x"], ["y"], domain="com.microsoft", **attrs)]
    return network(nodes, (1, "w", 64))


@pytest.mark.parametrize(
    ("make", "declared"),
    [(causal, (1, -1, 64)), (strided, (1, 3, 48, -1)), (narrow_heads, (1, -1, 24)), (enlarged, (1, 3, 4, -1))],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_few_programs_serve_all_widths(make: Callable[[], OnnxModel], declared: tuple[int, ...]) -> None:
    """Random widths from 40 on: whether one is odd, or fills blocks, makes no program of its own."""
    chosen = random.Random(7)
    sizes = [tuple(chosen.randint(40, 900) if each < 0 else each for each in declared) for _ in range(SIZES)]
    assert len(programs(make(), declared, sizes)) <= MOST


REAL = {
    "PP-OCRv6_rec_small.onnx": ((-1, 3, 48, -1), lambda chosen: (1, 3, 48, chosen.randint(40, 1400))),
    "PP-OCRv6_det_small.onnx": ((-1, 3, -1, -1), lambda chosen: (1, 3, *(32 * chosen.randint(3, 40) for _ in "hw"))),
    "ch_ppocr_mobile_v2.0_cls_mobile.onnx": ((-1, 3, -1, -1), lambda chosen: (1, 3, 48, chosen.randint(96, 400))),
}
"""Networks of a published package: their declared shape, and a size as it asks for one."""


@pytest.mark.skipif(find_spec("rapidocr") is None, reason="the package rapidocr, whose networks these are, is missing")
@pytest.mark.parametrize("name", REAL)
def test_few_programs_serve_a_published_network(name: str) -> None:
    """Lines of text are each of another width."""
    found = find_spec("rapidocr")
    assert found is not None
    assert found.origin is not None
    path = Path(found.origin).parent / "models" / name
    if not path.exists():
        pytest.skip(f"this version of rapidocr has no {name}")
    declared, size = REAL[name]
    chosen = random.Random(7)
    assert len(programs(load_model(path), declared, [size(chosen) for _ in range(SIZES)])) <= MOST
