"""Models that cannot be built: one clear error, which names the place and says what to do."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.backend.evaluate import evaluate
from opbuild.errors import DTypeError, InvalidModelError, ModelError, OptionError, ShapeError, UnsupportedOperatorError
from opbuild.frontend.input_shape import format_input_shape, parse_input_shape
from opbuild.frontend.onnx_model import load_model
from support import networks

pytestmark = pytest.mark.usefixtures("kept_objects")

FLOAT = TensorProto.FLOAT


def model(
    *nodes: onnx.NodeProto,
    x: tuple[int | str | None, ...] | None = (2, 3),
    dtype: int = FLOAT,
    opset: int = 17,
    initializers: tuple[TensorProto, ...] = (),
    **more: object,
) -> onnx.ModelProto:
    """Return a model from x to y."""
    inputs = [helper.make_tensor_value_info("x", dtype, x)]
    graph = helper.make_graph(list(nodes), "g", inputs, [helper.make_empty_tensor_value_info("y")], list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **more)


def relu(source: str = "x", result: str = "y", name: str = "act") -> onnx.NodeProto:
    """Return a Relu node."""
    return helper.make_node("Relu", [source], [result], name)


def fails(kind: type[ModelError], source: object, *words: str, **shapes: tuple[int, ...]) -> None:
    """Assert that reading and binding raises one error with these words and a hint, and no foreign one."""
    with pytest.raises(kind) as caught:
        load_model(source).bind(shapes, evaluate)  # type: ignore[arg-type]
    for word in words:
        assert word in str(caught.value)
    assert caught.value.hint


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """The path is in the message."""
    fails(InvalidModelError, tmp_path / "none.onnx", "none.onnx", "there is no file")


def test_a_directory_is_not_a_model(tmp_path: Path) -> None:
    """The hint asks for a file."""
    fails(InvalidModelError, tmp_path, "is a folder", "the path of an ONNX model")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"not an ONNX file at all", "is not an ONNX model"),
        (b"\x89PNG\r\n\x1a\n" + bytes(200), "not an ONNX model"),
        (bytes(64), "is not an ONNX model"),
    ],
)
def test_what_is_not_a_model_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    """An empty file and one of another format, as a path and as bytes."""
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    fails(InvalidModelError, path, "model.onnx", words)
    fails(InvalidModelError, content, words)


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9, 0.999])
def test_a_truncated_model_is_refused(tmp_path: Path, part: float) -> None:
    """A download that stopped gives an error of opbuild, never one of protobuf."""
    whole = networks.light_path("squeezenet").read_bytes()
    path = tmp_path / "cut.onnx"
    path.write_bytes(whole[: int(len(whole) * part)])
    fails(ModelError, path)


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_model_gives_an_error_of_opbuild_or_works(seed: int) -> None:
    """Whatever bytes are changed, no foreign exception escapes."""
    rng = np.random.default_rng(seed)
    content = bytearray(networks.mlp(batch=1, sizes=(4, 6, 3)).SerializeToString())
    for position in rng.integers(0, len(content), 3):
        content[position] = rng.integers(0, 256)
    with contextlib.suppress(ModelError):
        load_model(bytes(content)).bind({}, evaluate)


def test_an_unknown_operator_is_named_with_its_node() -> None:
    """The node, the operator and the domain are in the message."""
    fails(UnsupportedOperatorError, model(helper.make_node("Frobnicate", ["x"], ["y"], "odd")), "'odd'", "'Frobnicate'")
    custom = model(helper.make_node("Frobnicate", ["x", "x"], ["y"], "fused", domain="com.microsoft"))
    custom.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    fails(UnsupportedOperatorError, custom, "'fused'", "'Frobnicate'", "com.microsoft")


def test_an_operator_newer_than_the_operator_set_is_unknown() -> None:
    """Gelu came with opset 20."""
    fails(UnsupportedOperatorError, model(helper.make_node("Gelu", ["x"], ["y"], "g")), "'Gelu'", "operator set 17")


def test_an_operator_set_that_onnx_does_not_know_is_refused() -> None:
    """The message says which is the newest."""
    fails(
        UnsupportedOperatorError,
        model(relu(), opset=999),
        "operator set 999",
        f"knows {onnx.defs.onnx_opset_version()}",
    )


def test_nodes_that_do_not_fit_their_operator_are_named() -> None:
    """Too many inputs, an attribute that does not exist, one that is missing."""
    fails(InvalidModelError, model(helper.make_node("Relu", ["x", "x"], ["y"], "act")), "Relu node 'act' has 2 inputs")
    odd = helper.make_node("Relu", ["x"], ["y"], "act", slope=2)
    fails(InvalidModelError, model(odd), "Relu node 'act'", "'slope'")
    fails(InvalidModelError, model(helper.make_node("Concat", ["x"], ["y"], "join")), "'join' lacks", "'axis'")


def test_a_value_that_nothing_assigns_is_named() -> None:
    """By a node, and by the graph's outputs."""
    fails(InvalidModelError, model(relu("missing")), "'act' reads 'missing'")
    fails(InvalidModelError, model(relu("x", "z")), "output 'y' is not assigned")


def test_a_model_without_a_graph_or_outputs_is_refused() -> None:
    """Protobuf takes any default message for valid."""
    fails(InvalidModelError, onnx.ModelProto(), "has no graph")
    empty = model(relu())
    del empty.graph.output[:]
    fails(InvalidModelError, empty, "without outputs")


@pytest.mark.parametrize("shape", [("batch", 3), (None, 3), None])
def test_an_open_shape_asks_for_one(shape: tuple[int | str | None, ...] | None) -> None:
    """The hint is the argument to give, or the option to type."""
    fails(ShapeError, model(relu(), x=shape), "input 'x'", "input_shapes={'x': (1, 3")
    with pytest.raises(ShapeError) as caught:
        load_model(model(relu(), x=shape)).bind({}, evaluate)
    assert caught.value.command_hint.startswith('give it: --shape "x:1,3')
    assert load_model(model(relu(), x=shape)).bind({"x": (5, 3)}, evaluate).types["y"].shape == (5, 3)


def test_a_shape_of_another_rank_or_for_another_input_is_refused() -> None:
    """The message shows what the model declares."""
    for shapes, words in (
        ({"x": (1, 2, 3)}, ("input 'x' has 2 dimensions [2, 3]", "[1, 2, 3]")),
        ({"z": (1,)}, ("'z', which is no input", "'x'")),
        ({"x": (-2, 3)}, ("[-2, 3]",)),
    ):
        with pytest.raises(ShapeError) as caught:
            opbuild.compile(model(relu()), input_shapes=shapes)
        assert all(word in str(caught.value) for word in words)
        assert caught.value.hint
    fails(ShapeError, model(relu()), "[-1, 3]", x=(-1, 3))


def test_shapes_that_do_not_fit_name_the_node() -> None:
    """The node, and the types that met there."""
    weights = numpy_helper.from_array(np.zeros((4, 5), np.float32), "w")
    bad = model(relu("x", "a"), helper.make_node("MatMul", ["a", "w"], ["y"], "product"), initializers=(weights,))
    fails(ShapeError, bad, "MatMul node 'product'", "float32[2,3], float32[4,5]")


def test_types_that_are_not_supported_are_named() -> None:
    """Complex numbers, as inputs, as weights and as results of Cast."""
    kind = TensorProto.COMPLEX64
    fails(DTypeError, model(relu(), dtype=kind), "input 'x'", "COMPLEX64")
    fails(DTypeError, model(helper.make_node("Cast", ["x"], ["y"], "down", to=kind)), "Cast node 'down'")
    weight = helper.make_tensor("w", kind, [3], [1.0, 2.0, 3.0])
    fails(DTypeError, model(helper.make_node("Add", ["x", "w"], ["y"], "sum"), initializers=(weight,)), "tensor 'w'")


def test_a_sequence_is_not_a_tensor() -> None:
    """As an input, and as a value between nodes."""
    made = helper.make_node("SequenceConstruct", ["x"], ["s"], "pack")
    fails(
        UnsupportedOperatorError,
        model(made, helper.make_node("ConcatFromSequence", ["s"], ["y"], "c", axis=0)),
        "'pack'",
    )
    fed = model(relu())
    fed.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", FLOAT, (2,)))
    fails(UnsupportedOperatorError, fed, "reads a value that is no tensor")


def test_a_shape_known_only_at_run_time_is_refused_where_a_network_is_bound_whole() -> None:
    """NonZero's result has as many columns as there are such elements; offline models are bound whole."""
    fails(UnsupportedOperatorError, model(helper.make_node("NonZero", ["x"], ["y"], "found")), "NonZero node 'found'")
    shape = helper.make_tensor_value_info("s", TensorProto.INT64, (1,))
    free = model(helper.make_node("Reshape", ["x", "s"], ["y"], "free"))
    free.graph.input.append(shape)
    fails(UnsupportedOperatorError, free, "Reshape node 'free'", "'s'", "run time")


def test_a_tensor_whose_data_does_not_fit_is_named() -> None:
    """Raw data of another length than the shape asks for."""
    weight = numpy_helper.from_array(np.zeros(3, np.float32), "w")
    weight.raw_data = weight.raw_data[:-3]
    broken = model(helper.make_node("Add", ["x", "w"], ["y"], "sum"), initializers=(weight,))
    fails(InvalidModelError, broken, "tensor 'w'", "[3]")


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """Return the path of a model with its weights in ``weights.bin``."""
    weights = numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")
    saved = model(helper.make_node("Add", ["x", "w"], ["y"], "sum"), initializers=(weights,))
    path = tmp_path / "model.onnx"
    onnx.save(saved, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_external_data_is_read_and_named(external: Path) -> None:
    """Weights beside the model are part of it."""
    loaded = load_model(external)
    assert loaded.external_files == ("weights.bin",)
    assert loaded.bind({}, evaluate).constants["w"].tolist() == [0, 1, 2]
    data = external.parent / "weights.bin"
    data.write_bytes(np.arange(1, 4, dtype=np.float32).tobytes() + data.read_bytes()[12:])
    assert load_model(external).bind({}, evaluate).constants["w"].tolist() == [1, 2, 3]


def test_external_data_that_is_missing_short_or_elsewhere_is_an_error(external: Path) -> None:
    """The tensor and the file are named; a location outside the folder is refused."""
    content, data = external.read_bytes(), external.parent / "weights.bin"
    fails(InvalidModelError, content, "tensor 'w'", "weights.bin", "path")
    data.write_bytes(data.read_bytes()[:5])
    fails(InvalidModelError, external, "tensor 'w'", "weights.bin", "truncated")
    data.unlink()
    fails(InvalidModelError, external, "tensor 'w'", "weights.bin", "missing")
    external.write_bytes(content.replace(b"weights.bin", b"../host.key"))
    fails(InvalidModelError, external, "outside the folder")


def test_a_constant_if_is_inlined_and_another_cuts_the_network() -> None:
    """The branch taken becomes part of the graph; names that both branches use do not collide."""
    branch = [
        helper.make_graph([helper.make_node(op, ["x"], ["r"], op)], op, [], [helper.make_empty_tensor_value_info("r")])
        for op in ("Relu", "Neg")
    ]
    known = numpy_helper.from_array(np.array(False), "c")
    node = helper.make_node("If", ["c"], ["y"], "choice", then_branch=branch[0], else_branch=branch[1])
    twice = helper.make_node("If", ["c"], ["z"], "again", then_branch=branch[0], else_branch=branch[1])
    both = model(node, twice, helper.make_node("Add", ["y", "z"], ["sum"], "sum"), initializers=(known,))
    both.graph.output[0].name = "sum"
    assert [each.op_type for each in load_model(both).bind({}, evaluate).nodes] == ["Neg", "Neg", "Add"]
    free = model(node)
    free.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, ()))
    fails(UnsupportedOperatorError, free, "If node 'choice'", "run time")
    follows = load_model(free).walk({}, evaluate).follows
    assert follows is not None
    assert (follows.kind, follows.reads) == ("values", ("c",))


def test_functions_of_a_model_are_inlined() -> None:
    """A model-local function is its body."""
    body = [helper.make_node("Neg", ["a"], ["b"]), helper.make_node("Relu", ["b"], ["c"])]
    function = helper.make_function("local", "NegRelu", ["a"], ["c"], body, [helper.make_opsetid("", 17)])
    made = model(helper.make_node("NegRelu", ["x"], ["y"], "call", domain="local"), functions=[function])
    made.opset_import.append(helper.make_opsetid("local", 1))
    assert [each.op_type for each in load_model(made).bind({}, evaluate).nodes] == ["Neg", "Relu"]


def test_input_shapes_are_parsed_and_printed() -> None:
    """The option's text, with several inputs, scalars and names that hold colons."""
    shapes = {"data": (1, 3, 224, 224), "a:0": (8,), "s": ()}
    assert parse_input_shape("data:1,3,224,224; a:0:8;s:") == shapes
    assert parse_input_shape(format_input_shape(shapes)) == shapes


@pytest.mark.parametrize("text", ["", "data", "1,2", "data:1,x", "data:-1", "a:1;a:2", ":1"])
def test_an_input_shape_that_is_not_one_is_refused(text: str) -> None:
    """The hint shows how to write it."""
    with pytest.raises(OptionError) as caught:
        parse_input_shape(text)
    assert caught.value.hint
