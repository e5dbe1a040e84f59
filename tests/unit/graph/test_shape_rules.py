"""Shape rules against onnx's own shape inference and against the values in onnx's back-end tests."""

from __future__ import annotations

import subprocess
import sys
import warnings
from functools import lru_cache
from itertools import product

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from opbuild.backend.host.evaluate import evaluate, is_native
from opbuild.errors import DTypeError, ModelError, ShapeError, UnsupportedOperatorError
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes.infer import has_rule, infer, infer_node
from opbuild.graph.shape_rules import RULES
from opbuild.graph.shape_rules_movement import sliced
from opbuild.graph.symbolic_numbers import scaled
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.operations.table import OPERATIONS
from support.comparison import onnxruntime_outputs

Case = tuple[str, onnx.ModelProto, list[Array], list[Array], float]

_UNFIT = ("bernoulli", "dropout", "random", "range_")
"""Random ones, and Range written out as a Loop, for which onnx's reference evaluator gives another shape."""


_ROUNDED = {"float16": 1e-3, "bfloat16": 8e-3}
"""Two units in the last place of a number near 1, by which attention in 16 bits may differ: the reference rounds keys
that it scales, and products."""


@lru_cache(maxsize=1)
def cases() -> tuple[Case, ...]:
    """Return onnx's node tests that have tensors only: name, model, inputs, outputs, relative tolerance."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    usable = []
    for case in found:
        if case.model is None or not case.data_sets:
            continue
        inputs, outputs = case.data_sets[0]
        if all(isinstance(each, (np.ndarray, np.generic)) for each in (*inputs, *outputs)):
            arrays = [np.asarray(each) for each in inputs], [np.asarray(each) for each in outputs]
            usable.append((case.name, case.model, *arrays, case.rtol))
    return tuple(usable)


def with_rule(model: onnx.ModelProto) -> bool:
    """Return whether all of a model's operators have rules."""
    return all(has_rule(node.domain, node.op_type) for node in model.graph.node)


def bound(model: onnx.ModelProto, inputs: list[Array]) -> Graph:
    """Return the graph of a case, its inputs as constants where shapes depend on them."""
    names = [value.name for value in model.graph.input]
    shapes = {name: value.shape for name, value in zip(names, inputs, strict=True)}
    try:
        return load_model(model).bind(shapes, evaluate)
    except UnsupportedOperatorError:
        known = onnx.ModelProto()
        known.CopyFrom(model)
        known.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in zip(names, inputs, strict=True))
        return load_model(known).bind({}, evaluate)


@pytest.mark.slow
def test_rules_give_the_types_of_every_node_test() -> None:
    """For onnx's node tests whose operators have rules, the inferred types are those of the expected outputs."""
    checked = 0
    for name, model, inputs, outputs, _ in cases():
        if onnx_opset(model) < 7 or not with_rule(model):
            continue
        try:
            graph = bound(model, inputs)
        except DTypeError:
            continue  # bfloat16, float8, strings
        for output, wanted in zip(graph.outputs, outputs, strict=True):
            assert graph.types[output] == TensorType(str(wanted.dtype), wanted.shape), name
        checked += 1
    assert checked > 850


@pytest.mark.slow
def test_rules_agree_with_shape_inference_of_onnx() -> None:
    """Where onnx's inference finds a static type for a one-node model, the rule finds the same."""
    checked = 0
    for name, model, inputs, _, _ in cases():
        if len(model.graph.node) != 1 or not with_rule(model) or onnx_opset(model) < 18:
            continue
        inferred = onnx.ModelProto()
        inferred.CopyFrom(model)
        for value in inferred.graph.output:
            value.type.tensor_type.ClearField("shape")
        known = {value.name: array for value, array in zip(model.graph.input, inputs, strict=True)}
        inferred.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in known.items() if v.size < 100)
        try:
            found = shape_inference.infer_shapes(inferred, strict_mode=True, data_prop=True).graph.output
            graph = bound(model, inputs)
        except (shape_inference.InferenceError, DTypeError):
            continue
        for output, value in zip(graph.outputs, found, strict=True):
            dims = value.type.tensor_type.shape.dim
            if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
                assert graph.types[output].shape == tuple(dim.dim_value for dim in dims), name
                checked += 1
    assert checked > 100


def onnx_opset(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operator set in a model."""
    return max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=0)


@pytest.mark.slow
def test_numpy_implementations_give_the_results_of_every_node_test() -> None:
    """Operators that numpy serves on the host give the expected values, in the expected types."""
    checked = 0
    for name, model, inputs, outputs, tolerance in cases():
        if onnx_opset(model) < 7 or any(word in name for word in _UNFIT):
            continue
        try:
            graph = bound(model, inputs)
        except ModelError:
            continue
        if not graph.nodes or not all(is_native(node) for node in graph.nodes):
            continue
        values = {**graph.constants, **dict(zip((v.name for v in model.graph.input), inputs, strict=True))}
        for node in graph.nodes:
            arrays = [values[each] if each else None for each in node.inputs]
            values.update(zip(node.outputs, evaluate(node, arrays, graph.opset), strict=True))
        for output, wanted in zip(graph.outputs, outputs, strict=True):
            small = _ROUNDED.get(str(wanted.dtype), 1e-6) if "attention" in name else 1e-6
            np.testing.assert_allclose(
                values[output].astype(wanted.dtype), wanted, rtol=tolerance, atol=small, err_msg=name
            )
            assert values[output].dtype == wanted.dtype, name
        checked += 1
    assert checked > 700


def kinds(*shapes: tuple[int, ...], dtype: str = "float32") -> list[TensorType | None]:
    """Return types of one element type."""
    return [TensorType(dtype, shape) for shape in shapes]


@pytest.mark.parametrize(
    ("op_type", "shapes", "attrs", "problem"),
    [
        ("Add", [(2, 3), (4, 3)], {}, "do not broadcast"),
        ("MatMul", [(2, 3), (4, 5)], {}, "inner dimensions 3 and 4 differ"),
        ("Gemm", [(2, 3), (3, 5), (4, 5)], {}, "not broadcast"),
        ("Conv", [(1, 3, 8, 8), (4, 2, 3, 3)], {}, "3 input channels do not fit"),
        ("ConvInteger", [(1, 3, 8, 8), (4, 2, 3, 3)], {}, "3 input channels do not fit"),
        ("DFT", [(2, 8, 1)], {"inverse": 1, "onesided": 1}, "from complex numbers"),
        ("Conv", [(1, 3, 8, 8), (4, 3, 3, 3)], {"kernel_shape": (5, 5)}, "is not that of the weights"),
        ("Conv", [(1, 3, 2, 2), (4, 3, 3, 3)], {}, "does not fit the padded input"),
        ("MaxPool", [(1, 3, 8, 8)], {"kernel_shape": (2,)}, "does not fit an input of rank 4"),
        ("Concat", [(2, 3), (2, 4)], {"axis": 0}, "differ outside axis 0"),
        ("Concat", [(2, 3), (2, 3, 1)], {"axis": 0}, "differ"),
        ("Transpose", [(2, 3)], {"perm": (0, 2)}, "is not an order"),
        ("Softmax", [(2, 3)], {"axis": 2}, "axis 2 is outside"),
        ("BatchNormalization", [(1, 3, 2, 2), (3,), (4,), (3,), (3,)], {}, r"input 2 has shape \[4\]"),
        ("LayerNormalization", [(2, 8), (4,)], {}, "not broadcast"),
        ("Split", [(2, 5)], {"axis": 5}, "axis 5 is outside"),
        ("DepthToSpace", [(1, 6, 2, 2)], {"blocksize": 2}, "6 channels do not divide"),
        ("ConvInteger", [(1, 3, 8, 8), (4, 3, 3, 3), (), (2,)], {}, "input 3 has 2 elements for 4 output channels"),
        ("GatherElements", [(3, 5), (4, 2)], {"axis": 1}, "4 indices in dimension 0, which has 3 elements"),
        ("ScatterElements", [(3, 5), (2,), (2,)], {}, "has rank 2, not 1"),
        ("ScatterElements", [(3, 5), (4, 2), (4, 2)], {"axis": 1}, "4 indices in dimension 0, which has 3 elements"),
        ("ScatterElements", [(3, 5), (3, 2), (3, 4)], {"axis": 1}, r"input 2 has shape \[3, 4\], not \[3, 2\]"),
        ("ScatterND", [(3, 5), (2, 3), (2,)], {}, "index vectors do not fit"),
        ("ScatterND", [(3, 5), (2, 1), (2, 4)], {}, r"input 2 has shape \[2, 4\], not \[2, 5\]"),
        ("TensorScatter", [(1, 2, 4, 8), (1, 2, 5, 8)], {}, "5 elements in dimension 2, the cache 4"),
        ("TensorScatter", [(1, 2, 4, 8), (1, 2, 4, 7)], {}, r"input 1 has shape \[1, 2, 4, 7\], not \[1, 2, 4, 8\]"),
        ("TensorScatter", [(1, 2, 4, 8), (1, 2, 4, 8), (2,)], {}, r"input 2 has shape \[2\], not \[1\]"),
    ],
)
def test_shapes_that_do_not_fit_name_the_node_and_the_problem(
    op_type: str, shapes: list[tuple[int, ...]], attrs: dict[str, object], problem: str
) -> None:
    """A ShapeError names the operator, the node, what does not fit, and the inputs' types."""
    node = Node(op_type, tuple("abcde"[: len(shapes)]), ("y",), attrs, "layer7")
    with pytest.raises(ShapeError, match=problem) as caught:
        infer_node(node, kinds(*shapes), [None] * len(shapes))
    assert f"{op_type} node 'layer7'" in caught.value.message
    assert str(TensorType("float32", shapes[0])) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("count", [3, 8])
def test_a_resize_has_a_scale_for_each_axis(count: int) -> None:
    """Scales of which some had no axis, or an axis no scale, were a ValueError of zip."""
    node, types = Node("Resize", ("x", "", "scales"), ("y",), {}, "larger"), kinds((1, 1, 2, 2), (count,))
    with pytest.raises(ShapeError, match=f"{count} scales for 4 axes"):
        infer_node(node, [types[0], None, types[1]], [None, None, np.ones(count, np.float32)])


def test_a_resize_by_scales_and_by_sizes_is_an_error() -> None:
    """One of them is to be given, as ONNX Runtime has it; an empty one is none."""
    x, scales, sizes = np.ones((1, 1, 2, 2), np.float32), np.ones(4, np.float32), np.array([1, 1, 4, 4])
    node = Node("Resize", ("x", "", "scales", "sizes"), ("y",), {}, "larger")
    types = [TensorType("float32", x.shape), None, TensorType("float32", (4,)), TensorType("int64", (4,))]
    with pytest.raises(ShapeError, match="both scales and sizes"):
        infer_node(node, types, [None, None, scales, sizes])
    types[2] = TensorType("float32", (0,))
    (found,) = infer_node(node, types, [None, None, scales[:0], sizes])
    assert found.shape == (1, 1, 4, 4)


def test_element_types_that_differ_are_an_error() -> None:
    """ONNX converts nothing by itself."""
    node = Node("Mul", ("a", "b"), ("y",), {}, "product")
    with pytest.raises(DTypeError, match="float32, int64 differ"):
        infer_node(node, [TensorType("float32", (2,)), TensorType("int64", (2,))], [None, None])


def test_a_shape_that_depends_on_unknown_values_is_an_error_that_says_so() -> None:
    """Only static shapes are supported; the message names the input to make constant."""
    node = Node("Reshape", ("x", "shape"), ("y",), {}, "flat")
    with pytest.raises(UnsupportedOperatorError, match=r"(?s)'shape'.*known only at run time.*make that"):
        infer_node(node, [TensorType("float32", (2, 3)), TensorType("int64", (1,))], [None, None])


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_of_an_expression_has_a_rule(name: str) -> None:
    """The operators in domain opbuild are the operations, in camel case."""
    op_type = "".join(part.capitalize() for part in name.split("_"))
    node = Node(op_type, tuple("abc"[: OPERATIONS[name].arity]), ("y",), {}, "node", "opbuild")
    types = kinds((4, 1), (1, 3), (1, 1))[: OPERATIONS[name].arity]
    if name == "where":
        types[0] = TensorType("bool", (4, 1))
    (found,) = infer_node(node, types, [None] * len(types))
    assert found.shape == ((4, 1) if OPERATIONS[name].arity == 1 else (4, 3))
    predicates = "equal not_equal less less_equal greater greater_equal and or xor not is_nan is_inf is_finite"
    assert (found.dtype == "bool") == (name in predicates.split())


def test_a_user_can_add_a_rule() -> None:
    """A user-defined operator is typed like the rest."""
    RULES["opbuild", "DoubleWide"] = lambda call: (TensorType(call.dtype(0), (*call.shape(0), 2)),)
    node = Node("DoubleWide", ("x",), ("y",), {}, "mine", "opbuild")
    assert infer_node(node, kinds((3,)), [None]) == (TensorType("float32", (3, 2)),)


def test_a_graph_is_typed_from_its_inputs() -> None:
    """``infer`` types every value of a graph that has only its inputs' types."""
    nodes = (Node("Relu", ("x",), ("a",), {}, "r"), Node("MatMul", ("a", "w"), ("y",), {}, "m"))
    graph = Graph("g", nodes, ("x",), ("y",), {"x": TensorType("float32", (2, 3))}, {"w": np.ones((3, 4), np.float32)})
    assert infer(graph).types["y"] == TensorType("float32", (2, 4))


def test_inference_needs_no_onnx() -> None:
    """A tracer infers types without paying for onnx's import."""
    code = "import sys, opbuild.graph.passes.infer; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_ceil_mode_drops_a_window_that_begins_outside() -> None:
    """With ``ceil_mode`` a last window that would begin in the padding after the end is not counted."""
    node = Node("MaxPool", ("x",), ("y",), {"kernel_shape": (1,), "strides": (2,), "ceil_mode": 1}, "pool")
    assert infer_node(node, kinds((1, 1, 2)), [None])[0].shape == (1, 1, 1)


@pytest.mark.parametrize("extent", [0, 1, 2, 5])
def test_bounds_of_a_slice_are_clamped_as_the_text_says(extent: int) -> None:
    """With a negative step the start is clamped to the first element: Python's slices are empty there.

    Whatever the bounds, what is taken lies inside.
    """
    for start, end, step in product(range(-7, 8), (-(2**63), *range(-7, 8), 2**63 - 1), (-3, -1, 1, 2)):
        first, count = sliced(extent, start, end, step)
        taken = [first + index * step for index in range(count)]
        assert all(0 <= position < extent for position in taken)
        if step > 0 or start >= -extent:
            last = end if step > 0 or end >= -extent else None
            assert taken == list(range(extent))[start:last:step]
    assert sliced(1, -2, -2, -1) == (0, 1)


def test_random_numbers_like_integers_are_refused_when_the_network_is_built() -> None:
    """They have an element type of their own, or none: it was built, and failed when it was called."""
    for op_type in ("RandomUniformLike", "RandomNormalLike"):
        node = Node(op_type, ("x",), ("y",), {}, "draw")
        with pytest.raises(DTypeError, match="it makes floating-point numbers, not int64: give it the attribute dtype"):
            infer_node(node, [TensorType("int64", (2,))], [None])
        node = Node(op_type, ("x",), ("y",), {"dtype": 1}, "draw")
        assert infer_node(node, [TensorType("int64", (2,))], [None]) == (TensorType("float32", (2,)),)


def test_a_scaled_extent_is_rounded_down_in_float32() -> None:
    """As in ONNX Runtime: 5 times 2.6 is 13, which torch says too, though 2.6 in float32 is a little less."""
    scales = (0.1, 0.3, 0.7, 1.1, 1.3, 2, 2.6, 3.3)
    nodes = [
        helper.make_node("Resize", ["x", "", f"s{number}"], [f"y{number}"], coordinate_transformation_mode="asymmetric")
        for number in range(len(scales))
    ]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "scaled",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
            [helper.make_tensor_value_info(f"y{number}", TensorProto.FLOAT, None) for number in range(len(scales))],
            [helper.make_tensor(f"s{number}", TensorProto.FLOAT, [1], [scale]) for number, scale in enumerate(scales)],
        ),
        opset_imports=[helper.make_opsetid("", 19)],
        ir_version=9,
    )
    for extent in (5, 10, 20, 45, 90, 180, 299):
        expected = [len(each) for each in onnxruntime_outputs(model, {"x": np.zeros(extent, np.float32)})]
        assert [scaled(extent, np.float32(scale)) for scale in scales] == expected
