"""Reading ONNX models: whatever the bytes are, a graph or an error of opbuild, in little time and memory (F58)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from opbuild.backend.evaluate import evaluate
from opbuild.errors import OpbuildError
from opbuild.frontend.onnx_model import load_model
from opbuild.frontend.wire import LARGE, delimited, without_large_tensors
from support.fuzzing import CAMPAIGN, INPUTS, Change, changed, fuzz

FLOAT = TensorProto.FLOAT


pytestmark = [pytest.mark.timeout(7200)] if CAMPAIGN else []


def model(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], **more: object) -> ModelProto:
    """Return a model with one input and one output."""
    inputs = [helper.make_tensor_value_info("x", FLOAT, [1, 8, 8, 8])]
    outputs = [helper.make_tensor_value_info("y", FLOAT, None)]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("own", 1)], **more)


def branch(name: str, op_type: str) -> GraphProto:
    """Return a graph of one node that reads ``x`` from outside."""
    value = helper.make_tensor_value_info(name, FLOAT, None)
    return helper.make_graph([helper.make_node(op_type, ["x"], [name])], name, [], [value])


def models() -> list[ModelProto]:
    """Return small models that between them have everything that the reader follows."""
    node = helper.make_node
    weights = np.ones((8, 8, 3, 3), np.float32) * np.arange(8, dtype=np.float32).reshape(8, 1, 1, 1)
    both = {"then_branch": branch("a", "Relu"), "else_branch": branch("b", "Neg")}
    condition = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Cast", ["sum"], ["t"], to=TensorProto.BOOL)]
    function = helper.make_function(
        "own", "Twice", ["i"], ["o"], [node("Add", ["i", "i"], ["o"])], [helper.make_opsetid("", 20)]
    )
    shapes = [
        node("Shape", ["x"], ["s"]),
        node("ConstantOfShape", ["s"], ["z"]),
        node("Reshape", ["x", "r"], ["f"], allowzero=0),
        node("Slice", ["f", "b", "e"], ["p"]),
        node("Expand", ["p", "e"], ["q"]),
        node("ReduceSum", ["q"], ["y"], keepdims=0),
    ]
    numbers = {"r": np.int64([1, -1]), "b": np.int64([0, 0]), "e": np.int64([1, 9])}
    return [
        model([node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), node("Relu", ["c"], ["y"])], {"w": weights}),
        model([node("Constant", [], ["k"], value=numpy_helper.from_array(weights)), node("Neg", ["k"], ["y"])], {}),
        model([node("If", ["t"], ["y"], **both)], {"t": np.bool_([True])}),
        model([*condition, node("If", ["t"], ["y"], **both)], {}),
        model([node("Twice", ["x"], ["y"], domain="own")], {}, functions=[function]),
        model(shapes, numbers),
    ]


def outcome(source: bytes | Path) -> str:
    """Read a model as far as its graph, and say how far that was."""
    try:
        loaded = load_model(source)
    except OpbuildError:
        return "refused"
    try:
        loaded.walk({}, evaluate)
    except OpbuildError:
        return "not bound"
    return "bound"


def test_models_of_changed_bytes() -> None:
    """F58: bytes flipped, cut, doubled and spliced from other models, lengths that lie."""
    contents = [each.SerializeToString() for each in models()]
    assert [outcome(content) for content in contents] == ["bound"] * len(contents)

    def read(changes: list[Change], pick: int) -> str:
        return outcome(changed(contents[pick % len(contents)], changes, contents))

    assert fuzz("models as bytes", read)["refused"] > INPUTS // 3


def test_models_of_changed_fields() -> None:
    """F58: sound messages that say nonsense: cycles, names twice, sizes that no memory has, types swapped."""
    sound = models()

    def read(changes: list[Change], pick: int) -> str:
        proto = ModelProto()
        proto.CopyFrom(sound[pick % len(sound)])
        for kind, where, value in changes:
            change(proto, kind, where, value)
        return outcome(proto.SerializeToString())

    assert fuzz("models as messages", read)["not bound"] > INPUTS // 6


SIZES = [0, -1, 1, 2, 2**31, 2**40, 2**62, -(2**63), 100_000]
NAMES = ["x", "y", "w", "", "r", "no such name", "\u00e9", "a" * 3000]


def change(proto: ModelProto, kind: int, where: int, value: int) -> None:
    """Change one field of a model so that it stays a message."""
    graph = proto.graph
    node = graph.node[where % len(graph.node)]
    size, name = SIZES[value % len(SIZES)], NAMES[value % len(NAMES)]
    if kind == 0 and node.input:
        node.input[where % len(node.input)] = name
    elif kind == 1 and node.output:
        node.output[where % len(node.output)] = name
    elif kind == 2:
        graph.node.add().CopyFrom(node)
    elif kind == 3 and graph.initializer:
        tensor = graph.initializer[where % len(graph.initializer)]
        tensor.dims[:] = [size] * (value % 4)
    elif kind == 4:
        dims = graph.input[0].type.tensor_type.shape.dim
        dims[where % len(dims)].dim_value = size
    elif kind == 5:
        node.op_type = ["Loop", "Scan", "If", "Conv", "Concat", "Tile", "Range", "Pad", "Nothing"][value % 9]
    elif kind == 6 and graph.initializer:
        tensor = graph.initializer[where % len(graph.initializer)]
        if value % 3:
            tensor.data_type = value % 25
        else:
            shape = tuple(tensor.dims)[:2] if all(0 <= dim <= 8 for dim in tensor.dims) else ()
            tensor.CopyFrom(numpy_helper.from_array(np.full(shape, size, np.int64), tensor.name))
    elif kind == 7:
        attribute = node.attribute.add(name=["pads", "to", "perm", "axis", "value"][value % 5], i=size, ints=[size] * 3)
        attribute.type = [onnx.AttributeProto.INT, onnx.AttributeProto.INTS, onnx.AttributeProto.GRAPH][where % 3]
    else:
        proto.opset_import[0].version = where % 40


def test_models_nested_deeply_and_in_circles() -> None:
    """F58: branches in branches a thousand deep, functions that call each other or themselves, nodes in a circle."""
    inner = branch("a", "Relu").SerializeToString()
    for depth in range(1, 1001):
        attribute = delimited(1, b"then_branch") + delimited(6, inner) + b"\xa0\x01\x05"
        node = delimited(1, b"t") + delimited(2, b"a") + delimited(4, b"If") + delimited(5, attribute)
        inner = delimited(1, node) + delimited(2, b"g") + delimited(12, delimited(1, b"a"))
        if depth in (20, 1000):
            tensor = delimited(5, numpy_helper.from_array(np.bool_([True]), "t").SerializeToString())
            content = delimited(7, inner + tensor) + delimited(8, b"\x10\x14") + b"\x08\x0a"
            fuzz(f"branches {depth} deep", lambda changes, pick, content=content: outcome(content), inputs=1)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    circle = [
        helper.make_function("own", one, ["i"], ["o"], [helper.make_node(other, ["i"], ["o"], domain="own")], imports)
        for one, other in (("A", "B"), ("B", "A"), ("C", "C"))
    ]
    for name in ("A", "C"):
        called = model([helper.make_node(name, ["x"], ["y"], domain="own")], {}, functions=circle)
        assert set(
            fuzz(f"function {name}", lambda changes, pick, m=called: outcome(m.SerializeToString()), inputs=1)
        ) <= {
            "refused",
            "not bound",
        }
    ring = model([helper.make_node("Relu", ["b"], ["y"]), helper.make_node("Neg", ["y"], ["b"])], {})
    assert outcome(ring.SerializeToString()) == "refused"


def test_external_data_leads_nowhere_outside_the_folder(tmp_path: Path) -> None:
    """F58: absolute, upward, through a link, to a pipe or a device: an error that names tensor and file."""
    import os

    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(64))
    (folder / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")
    for location in ("/dev/zero", str(tmp_path / "secret"), "../secret", "a/../../secret", "link", "pipe", "", "\0"):
        tensor = TensorProto(name="w", data_type=FLOAT, dims=[16], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        proto = model([helper.make_node("Add", ["x", "w"], ["y"])], {})
        proto.graph.initializer.append(tensor)
        path = folder / "model.onnx"
        path.write_bytes(proto.SerializeToString())
        assert outcome(path) == "not bound", location


def test_the_wire_reader_returns_a_message_or_what_it_was_given() -> None:
    """F58: our own reader of protobuf's format never raises, and never makes a file larger than it was."""
    large = model([helper.make_node("Relu", ["x"], ["y"])], {"w": np.zeros(LARGE, np.float32)}).SerializeToString()

    def read(changes: list[Change], pick: int) -> str:
        data = changed(large[:400] + large[-400:] if pick % 2 else large, changes)
        slim = without_large_tensors(memoryview(data))[0]
        assert len(slim) <= len(data) + 100
        return "the same" if slim == data else "slimmer"

    assert len(fuzz("protobuf wires", read)) == 2
