"""Operators on text and dictionaries of ``ai.onnx.ml`` on the host, against ONNX Runtime where it follows the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.backend.host.evaluate import evaluate
from opbuild.backend.host.patterns import RegularExpression
from opbuild.errors import RunError
from opbuild.frontend import onnx_node
from opbuild.frontend.onnx_model import load_model
from opbuild.frontend.onnx_read import DataFiles
from opbuild.graph.types import Node

ML = "ai.onnx.ml"
NEWEST = onnx.defs.onnx_opset_version()


def text(*values: Any) -> np.ndarray[Any, Any]:
    """Return a tensor of text."""
    return np.array(values, object)


def node_of(op_type: str, inputs: list[Any], outputs: int, domain: str = "", **attrs: Any) -> onnx.NodeProto:
    """Return a node that reads ``i0``, ``i1`` and so on."""
    names = [f"i{index}" for index in range(len(inputs))]
    return helper.make_node(op_type, names, [f"o{i}" for i in range(outputs)], "node", domain=domain, **attrs)


def on_host(proto: onnx.NodeProto, inputs: list[Any]) -> list[Any]:
    """Return the outputs of a node on the host backend."""
    return evaluate(onnx_node.make_node(proto, proto.name, DataFiles()), inputs, NEWEST)


def of_runtime(proto: onnx.NodeProto, inputs: list[Any]) -> list[Any]:
    """Return the outputs of a node in ONNX Runtime."""
    kinds = [
        TensorProto.STRING if each.dtype == object else helper.np_dtype_to_tensor_dtype(each.dtype) for each in inputs
    ]
    declared = [
        helper.make_tensor_value_info(name, kind, each.shape)
        for name, kind, each in zip(proto.input, kinds, inputs, strict=True)
    ]
    graph = helper.make_graph([proto], "g", declared, [helper.make_empty_tensor_value_info(n) for n in proto.output])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 4)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, dict(zip(proto.input, inputs, strict=True)))
    return found


WORDS = text("a", "b c", "", "Über", "a", "日本")
MONTHS = {"keys_strings": ["jan", "feb"], "values_int64s": [1, 2]}

CALLS: list[tuple[str, str, list[Any], int, dict[str, Any]]] = [
    ("", "StringConcat", [WORDS, WORDS[::-1]], 1, {}),
    ("", "StringConcat", [WORDS.reshape(2, 3), text("x")], 1, {}),
    ("", "StringConcat", [np.array("a", object), np.array("b", object)], 1, {}),
    ("", "StringSplit", [text("a,b,,c", ",", "x,")], 2, {"delimiter": ","}),
    ("", "StringSplit", [text("  a b  c ", "d", " ")], 2, {}),
    ("", "StringSplit", [text(["a--b--c", "d"], ["e", "--"])], 2, {"delimiter": "--", "maxsplit": 1}),
    ("", "Equal", [WORDS, WORDS[::-1]], 1, {}),
    ("", "Equal", [WORDS.reshape(2, 3), text("a")], 1, {}),
    ("", "Identity", [WORDS], 1, {}),
    ("", "Gather", [WORDS, np.array([[1, -1]])], 1, {}),
    ("", "Gather", [WORDS, np.array(3)], 1, {}),
    ("", "Reshape", [WORDS, np.array([3, 2])], 1, {}),
    ("", "Transpose", [WORDS.reshape(2, 3)], 1, {}),
    ("", "Concat", [WORDS, text("z")], 1, {"axis": 0}),
    ("", "Split", [WORDS], 2, {"axis": 0, "num_outputs": 2}),
    ("", "Slice", [WORDS, np.array([4]), np.array([0]), np.array([0]), np.array([-2])], 1, {}),
    ("", "Squeeze", [WORDS.reshape(1, 6)], 1, {}),
    ("", "Unsqueeze", [WORDS, np.array([0])], 1, {}),
    ("", "Where", [np.array([True, False]), text("a", "b"), text("c", "d")], 1, {}),
    ("", "Shape", [WORDS.reshape(2, 3)], 1, {}),
    ("", "Size", [WORDS], 1, {}),
    ("", "Expand", [WORDS, np.array([2, 6])], 1, {}),
    ("", "Tile", [WORDS, np.array([2])], 1, {}),
    ("", "GatherElements", [WORDS, np.array([5, 0, -1])], 1, {}),
    ("", "GatherND", [WORDS.reshape(2, 3), np.array([[1, 2], [0, 0]])], 1, {}),
    ("", "ScatterElements", [WORDS, np.array([1]), text("new")], 1, {}),
    ("", "ScatterND", [WORDS, np.array([[1]]), text("new")], 1, {}),
    ("", "Unique", [WORDS], 4, {}),
    ("", "Compress", [WORDS, np.array([True, False, True])], 1, {}),
    ("", "RegexFullMatch", [WORDS], 1, {"pattern": r"[a-z](\s.)?"}),
    ("", "RegexFullMatch", [text("a", "9", "_", "é", "a9")], 1, {"pattern": r"[[:alpha:]]\d?|[[:punct:]]"}),
    ("", "RegexFullMatch", [text(" ", "\t", "\v", "\f", "a")], 1, {"pattern": r"\s"}),
    ("", "RegexFullMatch", [text("a", "a\n", "\n")], 1, {"pattern": "a$\n?|.|\\x{0a}\\z"}),
    ("", "RegexFullMatch", [text("]", "^", "-", "a")], 1, {"pattern": "[]^-]"}),
    ("", "RegexFullMatch", [text("A", "a", "b")], 1, {"pattern": "(?i)(?P<first>A)"}),
    ("", "Cast", [text("1", "1.5", "nan", "INF", "-inf", "1e5", "+Inf")], 1, {"to": TensorProto.FLOAT}),
    ("", "Cast", [text("1", "-15")], 1, {"to": TensorProto.INT64}),
    ("", "Cast", [np.array([3, -4])], 1, {"to": TensorProto.STRING}),
    ("", "Cast", [np.array([0.25, 0.1, np.nan, np.inf, -np.inf], np.float32)], 1, {"to": TensorProto.STRING}),
    (ML, "LabelEncoder", [text("feb", "jan", "x")], 1, MONTHS),
    (ML, "LabelEncoder", [np.array([[2, 1], [7, 2]])], 1,
     {"keys_int64s": [1, 2], "values_strings": ["a", "b"], "default_string": "none"}),
    (ML, "LabelEncoder", [np.array([0.1, np.nan, 3], np.float32)], 1,
     {"keys_floats": [0.1, np.nan], "values_floats": [1.5, 2.5]}),
    (ML, "LabelEncoder", [np.array([1, 5], np.int64)], 1,
     {"keys_tensor": numpy_helper.from_array(np.array([1, 2])),
      "values_tensor": numpy_helper.from_array(np.array([10, 20], np.float32)),
      "default_tensor": numpy_helper.from_array(np.array([-3], np.float32))}),
    (ML, "ArrayFeatureExtractor", [np.arange(12.0).reshape(3, 4), np.array([[3, 0, 3]])], 1, {}),
    (ML, "ArrayFeatureExtractor", [np.arange(4.0), np.array([1])], 1, {}),
    (ML, "Binarizer", [np.array([-1, 0.25, 0.5], np.float32)], 1, {"threshold": 0.25}),
]  # fmt: skip
"""Calls: domain, operator, inputs, number of outputs, attributes."""


@pytest.mark.parametrize(("domain", "op_type", "inputs", "outputs", "attrs"), CALLS)
def test_text_on_the_host_becomes_what_onnx_runtime_makes_of_it(
    domain: str, op_type: str, inputs: list[Any], outputs: int, attrs: dict[str, Any]
) -> None:
    """Text is an array of Python's strings wherever it comes from."""
    proto = node_of(op_type, inputs, outputs, domain, **attrs)
    for got, wanted in zip(on_host(proto, inputs), of_runtime(proto, inputs), strict=True):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        np.testing.assert_array_equal(got, wanted)


def test_an_empty_string_has_one_empty_part() -> None:
    """Delimiters delimit empty strings, so a string without any has one part; ONNX Runtime says none."""
    (parts, counts) = on_host(node_of("StringSplit", [WORDS], 2, delimiter=","), [text("", "a,b")])
    assert (parts.tolist(), counts.tolist()) == ([["", ""], ["a", "b"]], [1, 2])


@pytest.mark.parametrize(
    ("attrs", "wanted"),
    [
        ({"stopwords": ["monday"]}, ["Tuesday", "É"]),
        ({"stopwords": ["monday"], "is_case_sensitive": 1, "case_change_action": "LOWER"},
         ["monday", "tuesday", "monday", "é"]),
        ({"stopwords": ["MONDAY", "tuesday", "é"], "case_change_action": "UPPER"}, [""]),
        ({"case_change_action": "UPPER"}, ["MONDAY", "TUESDAY", "MONDAY", "É"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(4,), (1, 4)])
def test_words_are_normalised_without_touching_accents_or_the_locale(
    attrs: dict[str, Any], wanted: list[str], shape: tuple[int, ...]
) -> None:
    """Stop words are whole elements. onnx's evaluator strips accents, and changes the locale of the process."""
    words = text("Monday", "Tuesday", "MONDAY", "É").reshape(shape)
    (found,) = on_host(node_of("StringNormalizer", [words], 1, **attrs), [words])
    assert found.shape == (*shape[:-1], len(wanted))
    assert found.reshape(-1).tolist() == wanted


@pytest.mark.parametrize(
    "pattern", ["a(?=b)", "a(?!b)", "(?<=a)b", r"(a)\1", "a++", "(?>a)", r"\p{Greek}", "[[:emoji:]]"]
)
def test_a_pattern_that_re2_has_not_is_refused(pattern: str) -> None:
    """Python's syntax is not RE2's; what one of them lacks is an error and never means something else."""
    with pytest.raises(ValueError, match="pattern"):
        RegularExpression(pattern)
    with pytest.raises(RunError, match=r"'node'.*pattern"):
        on_host(node_of("RegexFullMatch", [WORDS], 1, pattern=pattern), [WORDS])


@pytest.mark.parametrize("word", ["x", "1.5", "1_0", "300", ""])
def test_text_that_shows_no_number_of_the_type_is_an_error(word: str) -> None:
    """The standard leaves it open; a wrong number would go on unseen."""
    with pytest.raises(RunError, match="Cast node 'node'"):
        on_host(node_of("Cast", [WORDS], 1, to=TensorProto.UINT8), [text(word)])


def test_numbers_as_text_are_read_as_the_same_numbers() -> None:
    """The shortest text that does; ONNX Runtime writes eight digits, which is not enough for all float32."""
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(200) * 10.0 ** rng.integers(-30, 30, 200)).astype(np.float32)
    (shown,) = on_host(node_of("Cast", [x], 1, to=TensorProto.STRING), [x])
    (read,) = on_host(node_of("Cast", [shown], 1, to=TensorProto.FLOAT), [shown])
    np.testing.assert_array_equal(read, x)


def test_of_equal_keys_the_last_counts() -> None:
    """The standard says so; ONNX Runtime takes the first."""
    proto = node_of("LabelEncoder", [WORDS], 1, ML, keys_strings=["a", "b", "a"], values_int64s=[1, 2, 3])
    assert on_host(proto, [text("a", "b", "c")])[0].tolist() == [3, 2, -1]


def _two_words(*nodes: onnx.NodeProto, inputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    words = numpy_helper.from_array(text("yes", "no"), "words")
    graph = helper.make_graph(list(nodes), "g", inputs, [helper.make_empty_tensor_value_info("y")], [words])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_text_that_is_known_is_folded() -> None:
    """Networks with constants of text need no text when they run."""
    equal = helper.make_node("Equal", ["words", "words"], ["y"], "same")
    graph = load_model(_two_words(equal, inputs=[])).bind({}, evaluate)
    assert graph.constants["y"].tolist() == [True, True]


def test_tensors_without_text_are_not_compared_as_text() -> None:
    """The two ways to compute an operator are told apart by the values."""
    (found,) = evaluate(Node("Equal", ("a", "b"), ("c",), {}, "node"), [np.array([1, 2]), np.array([1, 3])], NEWEST)
    assert found.tolist() == [True, False]


def test_text_that_depends_on_the_input_is_chosen_on_the_host(tmp_path: Path) -> None:
    """No kernel and no buffer holds text: the network is cut where it is read."""
    index = helper.make_tensor_value_info("i", TensorProto.INT64, [1])
    chosen = helper.make_node("Gather", ["words", "i"], ["w"], "choose")
    equal = helper.make_node("Equal", ["w", "words"], ["y"], "same")
    network = opbuild.compile(_two_words(chosen, equal, inputs=[index]), cache_path=tmp_path)
    assert network(np.array([0])).tolist() == [True, False]
    assert network(np.array([1])).tolist() == [False, True]
    assert network.report.host.get("Gather") == 1
