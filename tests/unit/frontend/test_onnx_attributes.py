"""Attributes of a wrong kind, and nodes that ask for what cannot be: one clear line, never numpy's or onnx's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from opbuild.backend.host.evaluate import evaluate
from opbuild.errors import InvalidModelError, ModelError, RunError
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes import fold, pipeline
from opbuild.graph.passes.infer import node_error_context
from opbuild.graph.types import Array, Graph, Node, TensorType

FLOAT = TensorProto.FLOAT


def model(
    op_type: str,
    constants: dict[str, Any] | None = None,
    shape: tuple[int, ...] = (1, 4),
    opset: int = 20,
    **attrs: Any,
) -> onnx.ModelProto:
    """Return a model of one node that reads x and constants."""
    known = {name: np.asarray(value) for name, value in (constants or {}).items()}
    made = helper.make_node(op_type, ["x", *known], ["y"], "n", **attrs)
    graph = helper.make_graph(
        [made],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(value, name) for name, value in known.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def fails(proto: onnx.ModelProto, *words: str) -> None:
    """Assert that reading, binding and optimizing a model ends in an error that names the node, on one line."""
    with pytest.raises(ModelError) as caught:
        pipeline.optimize(load_model(proto).bind({}, evaluate), evaluate)
    assert all(word in caught.value.message for word in ("'n'", *words)), caught.value
    assert caught.value.hint
    assert "\n" not in caught.value.message


VALUES: dict[int, Any] = {
    AttributeProto.FLOAT: 1.5,
    AttributeProto.INT: 1,
    AttributeProto.STRING: "a",
    AttributeProto.FLOATS: [1.5],
    AttributeProto.INTS: [1],
    AttributeProto.STRINGS: ["a"],
    AttributeProto.TENSOR: numpy_helper.from_array(np.ones(2, np.float32)),
    AttributeProto.GRAPH: helper.make_graph([], "g", [], []),
}


def schemas() -> list[onnx.defs.OpSchema]:
    """Return the newest schema of each operator."""
    return [each for each in onnx.defs.get_all_schemas() if not each.domain and each.attributes and not each.deprecated]


def test_an_attribute_of_another_kind_than_its_operators_is_refused() -> None:
    """Every attribute of every operator, of each other kind; Elu's alpha as a list was a TypeError of Python's."""
    tried = 0
    for schema in schemas():
        for name, attribute in schema.attributes.items():
            required = {
                other: VALUES[each.type.value]
                for other, each in schema.attributes.items()
                if each.required and each.type.value in VALUES
            }
            for kind, value in VALUES.items():
                if kind == attribute.type.value:
                    continue
                attrs = {**required, name: value}
                constants = dict.fromkeys(map(str, range(schema.min_input - 1)), np.float32(1))
                proto = model(schema.name, constants, opset=onnx.defs.onnx_opset_version())
                proto.graph.node[0].attribute.extend(helper.make_attribute(*each) for each in attrs.items())
                proto.graph.node[0].output.extend(f"y{index}" for index in range(1, schema.min_output))
                if not schema.min_input:
                    del proto.graph.node[0].input[:]
                with pytest.raises(InvalidModelError, match=f"attribute {name!r} is of kind .*, not of kind"):
                    load_model(proto).bind({}, evaluate)
                tried += 1
    assert tried > 1000


def test_attributes_whose_field_is_not_that_of_their_kind_are_refused() -> None:
    """Two values, a value of another kind, none of a graph, a reference outside a function, twice the same name."""
    for change, words in (
        ({"i": 3}, "holds f and i"),
        ({"ref_attr_name": "a"}, "refers to 'a'"),
        ({"type": AttributeProto.UNDEFINED}, "is of no kind"),
        ({"type": 99}, "is of kind"),
    ):
        proto = model("Elu", alpha=1.0)
        try:
            for field, value in change.items():  # type: ignore[attr-defined]
                setattr(proto.graph.node[0].attribute[0], field, value)
        except ValueError:
            continue  # protobuf does not take the number
        fails(proto, "attribute 'alpha'", words)
    twice = model("Elu", alpha=1.0)
    twice.graph.node[0].attribute.append(twice.graph.node[0].attribute[0])
    fails(twice, "'alpha' twice")
    empty = model("ConstantOfShape")
    empty.graph.node[0].attribute.append(AttributeProto(name="value", type=AttributeProto.TENSOR))
    fails(empty, "'value' is of kind TENSOR and holds nothing")


def test_a_number_that_a_writer_left_out_is_zero() -> None:
    """Some writers of protobuf leave out what is 0; ONNX Runtime takes such models."""
    proto = model("Softmax", axis=0)
    proto.graph.node[0].attribute[0].ClearField("i")
    assert load_model(proto).bind({}, evaluate).nodes[0].attrs == {"axis": 0}


@pytest.mark.parametrize("epsilon", [[1e-5, 1e-5], [], "small"])
def test_an_epsilon_that_is_no_number_is_refused(epsilon: Any) -> None:
    """BatchNormalization's ended in a TypeError when it was folded."""
    attribute = AttributeProto(name="epsilon", type=AttributeProto.FLOATS)
    made = helper.make_attribute("epsilon", epsilon) if epsilon else attribute
    ones = np.ones(4, np.float32)
    proto = model("BatchNormalization", {"s": ones, "b": ones, "m": ones, "v": ones})
    proto.graph.node[0].attribute.append(made)
    fails(proto, "'epsilon'")


@pytest.mark.parametrize("shape", [(1, 2**62), (2**31, 1), (2**16, 2**16), (0, 2**62), (2,) * 40])
def test_a_tensor_that_nothing_can_hold_is_refused_before_anybody_makes_it(shape: tuple[int, ...]) -> None:
    """As an input, and as what a node makes; it was numpy's "array is too big" in a pass."""
    with pytest.raises(ModelError, match="'x'"):
        load_model(model("Add", {"one": np.float32(1)}, shape)).bind({}, evaluate)
    if len(shape) < 3:
        fails(model("Expand", {"to": np.int64(shape)}, (1, 1)), "elements")


HUGE = 10**12


@pytest.mark.parametrize(
    ("op_type", "constants", "attrs"),
    [
        ("Expand", {"to": np.int64([HUGE, 4])}, {}),
        ("Tile", {"by": np.int64([HUGE, 1])}, {}),
        ("Pad", {"pads": np.int64([0, 0, HUGE, 0])}, {}),
        ("Resize", {"roi": np.float32([]), "scales": np.float32([1e12, 1])}, {"mode": "nearest"}),
        ("Upsample", {"scales": np.float32([1e12, 1])}, {"opset": 9}),
        ("OneHot", {"depth": np.int64(HUGE), "values": np.float32([0, 1])}, {}),
        ("CenterCropPad", {"to": np.int64([HUGE, 4])}, {}),
    ],
)
def test_a_small_model_of_huge_values_is_refused_before_they_are_made(
    op_type: str, constants: dict[str, Any], attrs: dict[str, Any]
) -> None:
    """What is known at build would have been made there and then: terabytes."""
    fails(model(op_type, constants, **attrs))
    known = model(op_type, constants, **attrs)
    known.graph.initializer.append(numpy_helper.from_array(np.ones((1, 4), np.float32), "x"))
    fails(known)


@pytest.mark.parametrize(
    ("op_type", "inputs"),
    [
        ("ConstantOfShape", [np.int64([HUGE])]),
        ("Range", [np.int64(0), np.int64(HUGE), np.int64(1)]),
        ("HannWindow", [np.int64(HUGE)]),
        ("Range", [np.float32(0), np.float32(1), np.float32(1e-30)]),
    ],
)
def test_a_value_of_huge_extent_made_of_constants_is_refused(op_type: str, inputs: list[Any]) -> None:
    """Also what onnx types, for which opbuild has no rule."""
    proto = model("Add", {"made": np.float32(0)})
    del proto.graph.initializer[:]
    names = [f"k{index}" for index in range(len(inputs))]
    proto.graph.node.insert(0, helper.make_node(op_type, names, ["made"], "n"))
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), n) for a, n in zip(inputs, names, strict=True)
    )
    fails(proto)


def test_folding_stops_when_it_has_gained_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too large for memory at build is computed at run, whatever it is made of; views are folded still."""
    monkeypatch.setattr(fold, "MOST_GROWTH", 4000)
    made: list[str] = []

    def note(node: Node, inputs: Any, opset: int) -> list[Array]:
        made.append(node.op_type)
        return evaluate(node, inputs, opset)

    names = ("a", "b", "c", "d")
    nodes = (
        Node("Tile", ("k", "by"), ("a",), {}, "first"),
        Node("Tile", ("k", "by"), ("b",), {}, "second"),
        Node("Neg", ("a",), ("c",), {}, "neg"),
        Node("Expand", ("k", "to"), ("d",), {}, "view"),
    )
    constants = {"k": np.ones(1, np.float32), "by": np.int64([600]), "to": np.int64([10**9])}
    types = {name: TensorType(str(value.dtype), value.shape) for name, value in constants.items()}
    types |= {name: TensorType("float32", (600,)) for name in "abc"} | {"d": TensorType("float32", (10**9,))}
    folded = pipeline.fold(Graph("g", nodes, (), names, types, constants), fold.Bounded(note))
    assert made == ["Tile", "Expand"]
    assert [node.name for node in folded.nodes] == ["second", "neg"]


def test_what_other_packages_raise_for_a_node_names_it() -> None:
    """Whatever the type is; errors of opbuild and interrupts pass."""
    node = Node("Elu", ("x",), ("y",), {}, "n")
    for error in (TypeError("t"), ValueError("v"), KeyError("k"), OverflowError("o"), MemoryError(), RecursionError()):
        with (
            pytest.raises(InvalidModelError, match=r"Elu node 'n'.*" + type(error).__name__),
            node_error_context(node),
        ):
            raise error
    for passing in (ModelError("m"), KeyboardInterrupt()):
        with pytest.raises(type(passing)), node_error_context(node):
            raise passing


def test_an_input_that_an_operator_needs_may_not_be_left_out() -> None:
    """An empty name in its place was a KeyError in lowering; an optional one may be empty."""
    proto = model("Mod", {"k": np.float32(1)}, fmod=1)
    proto.graph.node[0].input[0] = ""
    fails(proto, "lacks input 0")
    assert load_model(model("Clip", {"": np.float32(1), "high": np.float32(1)})).bind({}, evaluate).nodes


def test_a_branch_with_another_number_of_outputs_is_refused() -> None:
    """It was an error of zip, when the network was built or only when it ran."""
    inner = helper.make_graph([helper.make_node("Abs", ["x"], ["o"])], "b", [], [])
    inner.output.extend(helper.make_empty_tensor_value_info("o") for _ in range(2))
    proto = model("If", then_branch=inner, else_branch=inner)
    fails(proto, "has 1 output, its", "has 2")


def test_a_number_of_outputs_that_lies_is_refused_at_once() -> None:
    """Split counted to num_outputs for hours; BatchNormalization left outputs unwritten that only training has."""
    fails(model("Split", num_outputs=2**40), "num_outputs is")
    fails(model("Split", {"pieces": np.int64([-1, 2])}, axis=0), "pieces")
    ones = np.ones(4, np.float32)
    proto = model("BatchNormalization", {"s": ones, "b": ones, "m": ones, "v": ones})
    proto.graph.node[0].output.extend(["mean", "variance"])
    fails(proto, "more than one output")


def test_windows_that_no_integer_of_a_kernel_can_count_are_refused() -> None:
    """A stride of 2^40 over one element was a CompileError of Halide's."""
    fails(model("MaxPool", shape=(1, 1, 4), kernel_shape=[2], strides=[2**40]), "strides")


def test_constants_of_the_model_are_folded_however_large_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight may be changed some times; what is made of what was made counts, so that doubling it again ends."""
    monkeypatch.setattr(fold, "MOST_GROWTH", 100)
    evaluated = fold.Bounded(evaluate)
    value = np.ones(1000, np.float32)
    for _ in range(fold.ALLOWED):
        (value,) = evaluated(Node("Neg", ("a",), ("b",), {}, "neg"), [value], 21)
    with pytest.raises(RunError, match="'neg' is too large to be folded"):
        evaluated(Node("Neg", ("a",), ("b",), {}, "neg"), [value], 21)
    (turned,) = evaluated(Node("Identity", ("a",), ("b",), {}, "same"), [value], 21)
    assert turned.size == 1000


def test_a_constant_that_doubles_ends_before_memory_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both inputs of a Concat may be one value, which counts once; later passes go on with the same budget."""
    monkeypatch.setattr(fold, "MOST_GROWTH", 100_000)
    made: list[int] = []

    def note(node: Node, inputs: Any, opset: int) -> Any:
        found = evaluate(node, inputs, opset)
        made.extend(each.nbytes for each in found)
        return found

    nodes = tuple(Node("Concat", (f"c{i}",) * 2, (f"c{i + 1}",), {"axis": 0}, f"double {i}") for i in range(25))
    types = {f"c{i}": TensorType("float32", (2**i,)) for i in range(26)}
    constants = {"c0": np.ones(1, np.float32)}
    pipeline.optimize(Graph("g", nodes, (), ("c25",), types, constants), note)
    assert sum(made) <= 100_000 + 1000
