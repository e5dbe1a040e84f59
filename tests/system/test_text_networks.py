"""Networks with constants of text, and with dictionaries of text, built and started again as they are stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild

pytestmark = pytest.mark.usefixtures("kept_objects")

ML = "ai.onnx.ml"


def named(*words: str) -> onnx.ModelProto:
    """Return a model that turns scores to the greatest one's name, and the name to a number again."""
    names = numpy_helper.from_array(np.array(words, object), "names")
    nodes = [
        helper.make_node("ArgMax", ["scores"], ["place"], axis=1, keepdims=0),
        helper.make_node("Gather", ["names", "place"], ["name"]),
        helper.make_node("Equal", ["name", "names"], ["equal"]),
        helper.make_node(
            "LabelEncoder", ["name"], ["number"], domain=ML, keys_strings=[*words], values_floats=[1.5, 2]
        ),
        helper.make_node("Neg", ["number"], ["negative"]),
    ]
    outputs = [("name", TensorProto.STRING), ("equal", TensorProto.BOOL), ("negative", TensorProto.FLOAT)]
    graph = helper.make_graph(
        nodes,
        "named",
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs],
        [names],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 4)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.slow
@pytest.mark.parametrize("words", [("cat", "dog"), ("dog", "cat"), ("Ü", "")])
def test_names_of_classes_come_out_of_a_stored_network_too(tmp_path: Path, words: tuple[str, str]) -> None:
    """Text is stored with the parts of a network; networks that differ in text alone are different ones."""
    scores = np.float32([[0.25, 0.75]])
    for other in (words, words[::-1], words):
        name, equal, number = opbuild.compile(named(*other), cache_path=tmp_path)(scores)
        assert name.tolist() == [other[1]]
        assert equal.tolist() == [False, True]
        assert number.tolist() == [-2]
