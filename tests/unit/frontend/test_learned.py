"""Operators of ``ai.onnx.ml``: labels, maps and votes, beside ONNX Runtime; and what of them is left to the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser

import opbuild
from opbuild import onnxruntime as own_runtime
from opbuild.backend.host.evaluate import evaluate, is_native
from opbuild.backend.host.ml import FEW
from opbuild.errors import OpbuildError, RunError
from opbuild.frontend.onnx_node import with_common_versions
from opbuild.frontend.rewritten import REWRITES
from opbuild.graph.types import Node
from support.walk_runner import WalkRunner

ML = "ai.onnx.ml"
RNG = np.random.default_rng(9)


def model_of(*nodes: onnx.NodeProto, inputs: list[Any], outputs: list[Any], ml: int = 3) -> onnx.ModelProto:
    """Return a model of some nodes; ``inputs`` are types, or names with shapes of floats."""
    declared = [
        each if isinstance(each, onnx.ValueInfoProto) else helper.make_tensor_value_info(each[0], 1, each[1])
        for each in inputs
    ]
    graph = helper.make_graph(list(nodes), "g", declared, [helper.make_empty_tensor_value_info(n) for n in outputs])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(ML, ml)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def learned_node(op_type: str, inputs: list[str], outputs: list[str], **attrs: Any) -> onnx.NodeProto:
    """Return a node of ``ai.onnx.ml``."""
    return helper.make_node(op_type, inputs, outputs, f"the {op_type}", domain=ML, **attrs)


def of_runtime(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """Return the outputs of ONNX Runtime."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def support_classes(labels: dict[str, Any], classes: int, **attrs: Any) -> onnx.ModelProto:
    """Return a model of a support vector classifier with two vectors a class, of three numbers each."""
    draw, pairs = np.random.default_rng(classes), classes * (classes - 1) // 2
    given: dict[str, Any] = {
        "support_vectors": draw.standard_normal(6 * classes).tolist(), "vectors_per_class": [2] * classes,
        "coefficients": draw.standard_normal((classes - 1) * 2 * classes).tolist(), "kernel_type": "RBF",
        "kernel_params": [0.3, 0.0, 3.0], "rho": draw.standard_normal(pairs).tolist(),
    }  # fmt: skip
    node = learned_node("SVMClassifier", ["x"], ["label", "scores"], **{**given, **labels, **attrs})
    return model_of(node, inputs=[("x", ["n", 3])], outputs=["label", "scores"])


@pytest.mark.parametrize("classes", [2, 3, 4, 7])
@pytest.mark.parametrize("rows", [1, 5, 90])
def test_probabilities_of_several_classes_are_coupled_from_pairs(classes: int, rows: int) -> None:
    """The reference evaluator multiplied those of pairs: it was off by 0.2 with three classes."""
    pairs = classes * (classes - 1) // 2
    slopes = {"prob_a": np.linspace(-2, -0.5, pairs).tolist(), "prob_b": np.linspace(-0.2, 0.3, pairs).tolist()}
    model = support_classes({"classlabels_ints": [3 * each for each in range(classes)]}, classes, **slopes)
    x = RNG.standard_normal((rows, 3)).astype(np.float32)
    (label, scores), wanted = WalkRunner(model)(x=x), of_runtime(model, {"x": x})
    np.testing.assert_array_equal(label, wanted[0])
    np.testing.assert_allclose(scores, wanted[1], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(scores.sum(1), 1, rtol=1e-6)


def test_a_rows_probabilities_do_not_depend_on_the_rows_beside_it() -> None:
    """One row is computed with Python's numbers, many as columns: both bit for bit alike."""
    pairs = RNG.uniform(1e-7, 1 - 1e-7, (FEW + 30, 6)).astype(np.float32)
    node = Node("PairwiseCoupling", ("p",), ("c",), {"classes": 4}, "couple", "opbuild")
    (together,) = evaluate(node, [pairs], 21)
    alone = [evaluate(node, [row[None]], 21)[0][0] for row in pairs]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("names", [("cat", "dog"), ("dog", "cat")])
@pytest.mark.parametrize("with_probabilities", [False, True])
def test_two_classes_with_names_are_told_apart(names: tuple[str, str], with_probabilities: bool) -> None:
    """A label that is text comes from the host, its scores do not."""
    slopes = {"prob_a": [-1.5], "prob_b": [0.1]} if with_probabilities else {}
    model = support_classes({"classlabels_strings": names}, 2, rho=[0.0], **slopes)
    x = RNG.standard_normal((40, 3)).astype(np.float32)
    (label, scores), wanted = WalkRunner(model)(x=x), of_runtime(model, {"x": x})
    assert {*label} == {*names}
    np.testing.assert_array_equal(label, wanted[0])
    np.testing.assert_allclose(scores, wanted[1], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [{"classlabels_int64s": [4, -2, 7]}, {"classlabels_strings": ["b", "ü", "a"]}])
def test_rows_of_scores_become_dictionaries(tmp_path: Path, labels: dict[str, Any]) -> None:
    """As in ONNX Runtime: Python's numbers, the keys in order; networks and sessions give the same."""
    twice = helper.make_node("Add", ["x", "x"], ["y"], "twice")
    model = model_of(twice, learned_node("ZipMap", ["y"], ["maps"], **labels), inputs=[("x", ["n", 3])],
                     outputs=["maps", "y"])  # fmt: skip
    network = opbuild.compile(model, cache_path=tmp_path)
    session = own_runtime.InferenceSession(model.SerializeToString())
    for rows in (2, 3, 1):
        x = RNG.standard_normal((rows, 3)).astype(np.float32)
        wanted = of_runtime(model, {"x": x})[0]
        for found in (network(x)[0], network.run({"x": x})["maps"], session.run(["maps"], {"x": x})[0]):
            assert found == wanted
            assert str(found) == str(wanted)  # the keys' order, and the types of keys and values
    (value, _) = session.run_with_ort_values(None, {"x": own_runtime.OrtValue.ortvalue_from_numpy(x)})
    key = "string" if "classlabels_strings" in labels else "int64"
    assert (value.data_type(), value.is_tensor_sequence()) == (f"seq(map({key},tensor(float)))", False)


def test_labels_that_do_not_name_the_columns_are_an_error() -> None:
    """Two labels name no rows of three numbers."""
    model = model_of(learned_node("ZipMap", ["x"], ["maps"], classlabels_int64s=[0, 1]), inputs=[("x", [2, 3])],
                     outputs=["maps"])  # fmt: skip
    with pytest.raises(RunError, match=r"'the ZipMap'.*2 labels name rows of 3 numbers"):
        WalkRunner(model)(x=np.zeros((2, 3), np.float32))


def _map(key: int, value: int) -> onnx.ValueInfoProto:
    return helper.make_value_info("m", helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, [])))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "dtype"), [(TensorProto.FLOAT, "f4"), (TensorProto.DOUBLE, "f8"), (TensorProto.INT64, "i8")]
)
def test_a_dictionary_given_as_an_input_becomes_a_row(tmp_path: Path, value: int, dtype: str) -> None:
    """Of the type that the model declares for its values, whatever Python's numbers are; what is missing is 0."""
    node = learned_node("DictVectorizer", ["m"], ["row"], string_vocabulary=["a", "z", "b"])
    model = model_of(node, helper.make_node("Neg", ["row"], ["y"], "negative"),
                     inputs=[_map(TensorProto.STRING, value)], outputs=["y"])  # fmt: skip
    network, given = opbuild.compile(model, cache_path=tmp_path), {"a": 2, "b": 3, "c": 4}
    for found in (
        network({"m": given}),
        own_runtime.InferenceSession(model.SerializeToString()).run(None, {"m": given})[0],
    ):
        np.testing.assert_array_equal(found, np.array([[-2, 0, -3]], dtype))
        assert found.dtype == dtype
    with pytest.raises(RunError, match=r"DictVectorizer.*not a dictionary"):
        network({"m": [1.0]})


def test_elements_of_text_are_extracted() -> None:
    """The front end asked onnx for the type of a tensor of text, which is none of numpy's."""
    words = helper.make_tensor_value_info("w", TensorProto.STRING, [2, 3])
    places = helper.make_tensor_value_info("i", TensorProto.INT64, [2])
    model = model_of(learned_node("ArrayFeatureExtractor", ["w", "i"], ["y"]), inputs=[words, places], outputs=["y"])
    (found,) = WalkRunner(model)(w=np.array([["a", "b", "c"], ["d", "e", "f"]], object), i=np.array([2, 0]))
    assert found.tolist() == [["c", "a"], ["f", "d"]]


@pytest.mark.parametrize(
    ("rows", "categories", "said"),
    [
        ([[0, 3]], [0, 1], r"the OneHotEncoder/.*index 3 is out of range: it must be from 0 to 1"),
        ([[4, 3]], [4, 1], r"'the OneHotEncoder'.*3 is none of its categories"),
        ([["a", "?"]], ["a", "b"], r"'the OneHotEncoder'.*'\?' is none of its categories"),
    ],
)
def test_a_category_that_there_is_not_is_an_error_where_the_model_says_so(
    rows: Any, categories: list[Any], said: str
) -> None:
    """With ``zeros=0`` the message names the value."""
    is_text = isinstance(categories[0], str)
    kind = TensorProto.STRING if is_text else TensorProto.INT64
    attrs = {"cats_strings" if is_text else "cats_int64s": categories}
    x = helper.make_tensor_value_info("x", kind, [1, 2])
    model = model_of(learned_node("OneHotEncoder", ["x"], ["y"], zeros=0, **attrs), inputs=[x], outputs=["y"])
    with pytest.raises(RunError, match=said):
        WalkRunner(model)(x=np.array(rows, object if is_text else np.int64))


def test_names_and_dictionaries_cut_a_classifier_once_behind_its_numbers() -> None:
    """Whatever stands behind a name in the model: nodes of the host come last, and nothing that has a kernel is one."""
    attrs = {"classlabels_strings": ["a", "b"], "coefficients": [1.0, 2.0, 3.0, 4.0], "intercepts": [0.0, 0.0]}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
    nodes = [
        learned_node("LinearClassifier", ["x"], ["label", "scores"], post_transform="SOFTMAX", **attrs),
        helper.make_node("Identity", ["label"], ["name"]),
        learned_node("Normalizer", ["scores"], ["shares"], norm="L1"),
        learned_node("ZipMap", ["shares"], ["map"], classlabels_strings=["a", "b"]),
    ]
    runner = WalkRunner(model_of(*nodes, inputs=[x], outputs=["name", "map"]))
    names, maps = runner(x=np.eye(2, dtype=np.float32))
    walked = runner.model.walk({"x": (2, 2)}, evaluate)
    assert walked.follows is not None
    assert [each.op_type for each in walked.follows.nodes] == ["ClassNames", "ZipMap"]
    assert runner.breaks == ["data ZipMap"]
    assert names.tolist() == ["b", "b"]
    assert len(maps) == 2


def test_names_of_the_first_operator_set_count_from_zero() -> None:
    """LabelEncoder had one list of names, in both directions."""
    node = learned_node("LabelEncoder", ["x"], ["y"], classes_strings=["no", "yes"], default_int64=-7)
    for given, kind, wanted in (
        (np.array(["yes", "?", "no"], object), TensorProto.STRING, [1, -7, 0]),
        (np.array([1, 0, 5]), TensorProto.INT64, ["yes", "no", "_Unused"]),
    ):
        x = helper.make_tensor_value_info("x", kind, [3])
        (found,) = WalkRunner(model_of(node, inputs=[x], outputs=["y"], ml=1))(x=given)
        assert found.tolist() == wanted


@pytest.mark.slow
def test_more_names_than_a_cut_holds_of_numbers_are_text_still(tmp_path: Path) -> None:
    """A table of a thousand labels is no result of the part before it, with any number of rows."""
    count = 1000
    attrs = {"coefficients": RNG.standard_normal(count).tolist(), "intercepts": RNG.standard_normal(count).tolist()}
    node = learned_node("LinearClassifier", ["x"], ["label", "s"], classlabels_strings=[f"c{n}" for n in range(count)],
                        **attrs)  # fmt: skip
    model = model_of(node, inputs=[("x", ["n", 1])], outputs=["label", "s"])
    network = opbuild.compile(model, cache_path=tmp_path)
    for rows in (2, 5, 3):
        x = RNG.standard_normal((rows, 1)).astype(np.float32)
        np.testing.assert_array_equal(network(x)[0], of_runtime(model, {"x": x})[0])


FUNCTION = """
<ir_version: 8, opset_import: ["": 18, "local": 1]>
agraph (float[2, 3] x) => (float[2, 3] y) {{ y = local.clean (x) }}
<domain: "local", opset_import: ["": 16]>
clean (x) => (y) {{
    missing = IsNaN (x)
    zero = Constant <value: tensor = float[1] {{0.0}}> ()
    kept = Where (missing, zero, x)
    y = {last} (kept)
}}"""


@pytest.mark.parametrize(("last", "version"), [("Abs", 18), ("ReduceMax", 16)])
def test_a_function_of_an_older_operator_set_is_taken_as_it_is_where_nothing_changed(last: str, version: int) -> None:
    """What the inliner of onnx need not convert it cannot fail on; ReduceMax of set 18 has another form."""
    found = with_common_versions(parser.parse_model(FUNCTION.format(last=last)))
    assert [each.version for each in found.functions[0].opset_import] == [version]


def test_an_imputer_by_neighbours_is_read_in_every_operator_set() -> None:
    """The inliner of onnx asserts in converting its functions from set 16 to 18, although nothing changed."""
    impute = pytest.importorskip("sklearn.impute", reason="scikit-learn is not installed")
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    x = np.array([[1, np.nan], [2, 3], [np.nan, 5], [4, 6]], np.float32)
    imputer = impute.KNNImputer(n_neighbors=2).fit(x)
    for opset in (18, 20, 21):
        model = skl2onnx.to_onnx(imputer, x, target_opset={"": opset, ML: 3})
        (found,) = WalkRunner(model)(X=x)
        np.testing.assert_allclose(found, imputer.transform(x), rtol=1e-6)


def test_no_operator_of_the_domain_is_left_to_onnxs_evaluator() -> None:
    """Each is written with others, or computed by numpy here."""
    known = {each.name for each in onnx.defs.get_all_schemas() if each.domain == ML}
    others = {name for name in known if not REWRITES.serves(ML, name)}
    assert [name for name in others if not is_native(Node(name, ("x",), ("y",), {}, "n", ML))] == []


@pytest.mark.parametrize(
    ("op_type", "attrs"),
    [
        ("Normalizer", {"norm": "L3"}),
        ("LinearRegressor", {"coefficients": [1.0], "post_transform": "ROOT"}),
        ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0], "targets": 2}),
        ("Imputer", {"imputed_value_int64s": [1]}),
        ("SVMRegressor", {"kernel_type": "COSINE", "n_supports": 1, "support_vectors": [1.0], "coefficients": [1.0]}),
        ("LinearClassifier", {"coefficients": [1.0, 2.0], "intercepts": [0.0, 1.0], "classlabels_ints": [3]}),
    ],
)
def test_attributes_that_mean_nothing_are_refused(op_type: str, attrs: dict[str, Any]) -> None:
    """The message names the node."""
    outputs = ["y", "z"] if op_type == "LinearClassifier" else ["y"]
    model = model_of(learned_node(op_type, ["x"], outputs, **attrs), inputs=[("x", [2, 1])], outputs=outputs)
    with pytest.raises(OpbuildError, match=f"'the {op_type}'"):
        WalkRunner(model)(x=np.ones((2, 1), np.float32))
