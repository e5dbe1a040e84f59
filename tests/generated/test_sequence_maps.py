"""Random SequenceMap nodes against ONNX Runtime: element types, several sequences, elements of different shapes.

``OPBUILD_FUZZ=5000`` tries so many.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import helper

import opbuild
from support.fuzzing import CAMPAIGN, SEED, check_seeds
from support.tiers import spans
from support.walk_runner import WalkRunner

Array = npt.NDArray[Any]

CALLS = 2
DTYPES = ("float32", "float64", "float16", "int32", "int64", "uint8")
TENSORS = ((), (3,), (2, 1), (1, 1, 3))
ELEMENTS = ((), (3,), (1,), (2, 3), (1, 3), (4, 2, 3), (4, 1, 1))
"""Shapes that can be added to each other and to those of the tensors."""


class RandomMap:
    """Makes one network.

    Args:
        seed: Which.

    Attributes:
        model: The network.
    """

    def __init__(self, seed: int) -> None:
        self._random = draw = random.Random(seed)
        self._dtype = np.dtype(draw.choice(DTYPES))
        self._sequences = [f"s{index}" for index in range(draw.randint(1, 3))]
        self._tensors = {f"t{index}": draw.choice(TENSORS) for index in range(draw.randint(0, 2))}
        kind = helper.np_dtype_to_tensor_dtype(self._dtype)
        tensor = helper.make_tensor_type_proto(kind, None)
        given = [helper.make_value_info(name, helper.make_sequence_type_proto(tensor)) for name in self._sequences]
        shapes = {**self._tensors, "outer": (3,)}
        given += [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
        inner = [f"p{name}" for name in (*self._sequences, *self._tensors)]
        known, nodes = [*inner, "outer"], []
        for index in range(draw.randint(1, 4)):
            op_type, count = draw.choice((("Add", 2), ("Mul", 2), ("Identity", 1), ("Max", 2)))
            nodes.append(helper.make_node(op_type, [draw.choice(known) for _ in range(count)], [f"v{index}"]))
            known.append(f"v{index}")
        made = [node.output[0] for node in nodes]
        results = draw.sample(made, draw.randint(1, len(made)))
        body = helper.make_graph(
            nodes,
            "body",
            [helper.make_tensor_value_info(name, kind, None) for name in inner],
            [helper.make_tensor_value_info(name, kind, None) for name in results],
        )
        outputs = [f"y{index}" for index in range(len(results))]
        node = helper.make_node("SequenceMap", [*self._sequences, *self._tensors], outputs, body=body, name="map")
        values = [helper.make_value_info(name, helper.make_sequence_type_proto(tensor)) for name in outputs]
        graph = helper.make_graph([node], "maps", given, values)
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def feeds(self, seed: int, length: int) -> dict[str, Any]:
        """Return sequences of so many elements."""
        rng, draw = np.random.default_rng(seed), random.Random(seed)

        def values(shape: tuple[int, ...]) -> Array:
            return np.asarray(rng.integers(0, 4, shape)).astype(self._dtype)

        found: dict[str, Any] = {
            name: [values(draw.choice(ELEMENTS)) for _ in range(length)] for name in self._sequences
        }
        return found | {name: values(shape) for name, shape in self._tensors.items()} | {"outer": values((3,))}


def expected(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[list[Array]]:
    """Return the outputs of ONNX Runtime."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def compare(got: list[list[Array]], wanted: list[list[Array]], where: str) -> None:
    """All numbers are whole: results are equal, not only close."""
    assert [len(each) for each in got] == [len(each) for each in wanted], where
    for one, other in zip(got, wanted, strict=True):
        for element, value in zip(one, other, strict=True):
            np.testing.assert_array_equal(element, value, err_msg=where, strict=True)


@pytest.mark.parametrize("seeds", spans(30, 12))
def test_maps_compute_what_onnx_runtime_does(seeds: range) -> None:
    """Node by node; sequences may be empty."""

    def one(seed: int) -> None:
        network = RandomMap(seed)
        runner = WalkRunner(network.model)
        for call in range(CALLS):
            feeds = network.feeds(seed + call, (seed + 2 * call) % 4)
            compare(runner(**feeds), expected(network.model, feeds), f"map {seed}, call {call}")
        assert runner.breaks[0] == "repeat SequenceMap"

    check_seeds("sequence maps", one, seeds)


@pytest.mark.parametrize("seed", range(SEED, SEED + (CAMPAIGN // 20 or 1)))
def test_what_is_mapped_has_kernels(seed: int, tmp_path: Path) -> None:
    """The body is a program like that of a Loop, bound for the shapes of each element."""
    network = RandomMap(seed + 3)
    net = opbuild.compile(network.model, cache_path=tmp_path)
    feeds = network.feeds(seed, 3)
    compare(net.run(None, feeds), expected(network.model, feeds), f"map {seed + 3}")
    assert not net.report.host
    assert net.report.breaks == ("SequenceMap map",)
