"""Operators that run on the host: the results that onnx's reference evaluator got wrong, and what it could not run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper

import opbuild
from opbuild.backend.host.evaluate import evaluate
from opbuild.backend.host.reference import evaluate_reference
from opbuild.dtypes import numpy_dtype
from opbuild.errors import ModelError, ShapeError
from opbuild.graph.types import Node
from support.comparison import onnxruntime_output

pytestmark = pytest.mark.usefixtures("kept_objects")

Array = npt.NDArray[Any]


def on_host(op_type: str, *inputs: Array | None, outputs: int = 1, **attrs: Any) -> list[Array]:
    """Return a node's outputs."""
    names = tuple("" if each is None else f"i{index}" for index, each in enumerate(inputs))
    node = Node(op_type, names, tuple(f"o{index}" for index in range(outputs)), attrs, "node")
    return evaluate(node, inputs, 21)


def f32(*values: Any) -> Array:
    """Return float32 values."""
    return np.array(values, np.float32)


def model_of(op_type: str, inputs: Sequence[Array], **attrs: Any) -> onnx.ModelProto:
    """Return a model of one node whose inputs are i0, i1, ..."""
    names = [f"i{index}" for index in range(len(inputs))]
    node = helper.make_node(op_type, names, ["out"], "the node", **attrs)
    values = [helper.make_tensor_value_info(name, 1, each.shape) for name, each in zip(names, inputs, strict=True)]
    graph = helper.make_graph([node], "one", values, [helper.make_empty_tensor_value_info("out")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def built(op_type: str, inputs: Sequence[Array], cache: Path, **attrs: Any) -> tuple[Array, Array]:
    """Return the results of a network of one node, and those of ONNX Runtime."""
    model = model_of(op_type, inputs, **attrs)
    feeds = {f"i{index}": each for index, each in enumerate(inputs)}
    return np.asarray(opbuild.compile(model, cache_path=cache)(feeds)), onnxruntime_output(model, feeds)


@pytest.mark.parametrize(("stash", "dtype"), [(1, "float32"), (11, "float64")])
def test_statistics_of_a_layer_normalization_have_their_own_type(stash: int, dtype: str) -> None:
    """Those of float64 were float64, where the model says float32: the call failed."""
    x = np.array([[1.0, 2.0, 6.0]])
    found, mean, inverse = on_host("LayerNormalization", x, np.ones(3), outputs=3, stash_type=stash)
    assert [str(each.dtype) for each in (found, mean, inverse)] == ["float64", dtype, dtype]
    np.testing.assert_allclose(found, (x - mean) * inverse, rtol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(x.var() + 1e-5), rtol=1e-6)


def test_a_norm_with_p_1_sums_absolute_values() -> None:
    """LpNormalization divided by the plain sum, so that signs cancelled; nothing but zeros stays zeros."""
    (found,) = on_host("LpNormalization", f32([1, -3], [0, 0]), p=1)
    assert found.tolist() == [[0.25, -0.75], [0, 0]]


def test_a_pool_of_norms_takes_absolute_values_and_counts_no_padding_twice() -> None:
    """LpPool with p=1 summed with signs, and with ceil_mode read positions that are not there."""
    x = f32([[1, -2, 3, -4, 5]])
    assert on_host("LpPool", x, p=1, kernel_shape=(2,))[0].tolist() == [[[3, 5, 7, 9]]]
    found = on_host("LpPool", x, p=1, kernel_shape=(2,), strides=(2,), ceil_mode=1)
    assert found[0].tolist() == [[[3, 7, 5]]]
    found = on_host("LpPool", x, p=1, kernel_shape=(2,), strides=(2,), ceil_mode=1, auto_pad="SAME_UPPER")
    assert found[0].tolist() == [[[3, 7, 5]]]


def test_indices_of_a_max_pool_count_over_the_whole_input() -> None:
    """Of strided, padded and dilated windows, of the first of equal elements, rows or columns first."""
    x = np.array([3, 1, 2, 3, 0, 5, 5, 1, 4], np.float32).reshape(1, 1, 3, 3).repeat(2, 1)
    x[0, 1] += 1
    kernel: dict[str, Any] = {"kernel_shape": (2, 2), "outputs": 2}
    assert on_host("MaxPool", x, **kernel)[1].tolist() == [[[[0, 5], [6, 5]], [[9, 14], [15, 14]]]]
    assert on_host("MaxPool", x, **kernel, storage_order=1)[1].tolist() == [[[[0, 7], [2, 7]], [[9, 16], [11, 16]]]]
    padded = on_host("MaxPool", x, **kernel, pads=(1, 1, 1, 1), strides=(3, 3))[1]
    assert padded.tolist() == [[[[0, 2], [6, 8]], [[9, 11], [15, 17]]]]
    dilated = on_host("MaxPool", x, **kernel, dilations=(2, 2))
    assert (dilated[0].tolist(), dilated[1].tolist()) == ([[[[5]], [[6]]]], [[[[6]], [[15]]]])


@pytest.fixture
def sequence() -> dict[str, Array]:
    """Two sequences of three steps, and weights that copy the input into one hidden unit."""
    return {"x": f32([[1], [10]], [[2], [20]], [[3], [30]]), "w": f32([[1]]), "r": f32([[1]])}


def affine(sequence: dict[str, Array], lengths: list[int] | None = None, **attrs: Any) -> list[Array]:
    """Return the outputs of an RNN whose activation is the identity: running sums."""
    attrs = {"activations": ("Affine",), "activation_alpha": (1.0,), "activation_beta": (0.0,), **attrs}
    ends = None if lengths is None else np.array(lengths, np.int32)
    return on_host("RNN", sequence["x"], sequence["w"], sequence["r"], None, ends, outputs=2, **attrs)


def test_a_sequence_ends_where_sequence_lens_says(sequence: dict[str, Array]) -> None:
    """The reference evaluator read on: Y_h was that of the padding, and Y was not zero behind the end."""
    every, last = affine(sequence, [3, 1])
    assert every[:, 0, :, 0].tolist() == [[1, 10], [3, 0], [6, 0]]
    assert last[0, :, 0].tolist() == [6, 10]


def test_a_reversed_sequence_begins_at_its_own_end(sequence: dict[str, Array]) -> None:
    """Also where the sequences of a batch have different lengths."""
    every, last = affine(sequence, [3, 2], direction="reverse")
    assert every[:, 0, :, 0].tolist() == [[6, 30], [5, 20], [3, 0]]
    assert last[0, :, 0].tolist() == [6, 30]


def test_a_batch_may_come_first(sequence: dict[str, Array]) -> None:
    """layout=1: the batch is the first dimension of the input and of all outputs."""
    moved = {**sequence, "x": sequence["x"].swapaxes(0, 1)}
    every, last = affine(moved, layout=1)
    assert every.shape == (2, 3, 1, 1)
    assert every[:, :, 0, 0].tolist() == [[1, 3, 6], [10, 30, 60]]
    assert last[:, 0, 0].tolist() == [6, 60]


def test_activations_take_the_parameters_that_are_given_in_order(sequence: dict[str, Array]) -> None:
    """Those that take none leave them to the next; without any, ONNX's defaults count."""
    given = {"activations": ("Relu", "LeakyRelu"), "activation_alpha": (0.5,), "direction": "bidirectional"}
    twice = {"x": -sequence["x"], "w": f32([[1]], [[1]]), "r": f32([[0]], [[0]])}
    attrs = {**given, "activation_beta": ()}
    every, _ = affine(twice, **attrs)
    assert every[:, :, 0, 0].tolist() == [[0, -0.5], [0, -1], [0, -1.5]]
    every, _ = affine(twice, **{**attrs, "activation_alpha": ()})
    np.testing.assert_allclose(every[:, 1, 0, 0], [-0.01, -0.02, -0.03], rtol=1e-6)


def test_clip_bounds_what_activations_get(sequence: dict[str, Array]) -> None:
    """The reference evaluator did not clip."""
    every, _ = affine(sequence, clip=4.0)
    assert every[:, 0, :, 0].tolist() == [[1, 4], [3, 4], [4, 4]]


def test_an_lstm_may_forget_what_it_does_not_take_in() -> None:
    """input_forget=1: the forget gate is one less the input gate, whatever its own weights are."""
    gates = f32([[0], [0], [9], [1]]).reshape(1, 4, 1)
    x, r, c = f32([[1]]), np.zeros((1, 4, 1), np.float32), f32([[2]])
    _, _, cell = on_host("LSTM", x, gates, r, None, None, None, c, outputs=3, input_forget=1)
    assert cell.item() == pytest.approx(0.5 * 2 + 0.5 * np.tanh(1), rel=1e-6)


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"direction": "sideways"}, "direction is 'sideways'"),
        ({"activations": ["Swoosh"]}, "the activation 'Swoosh' is not one of"),
        ({"activations": ["Tanh", "Tanh"]}, "2 activations, not 1"),
        ({"activations": ["Affine"]}, "Affine needs activation_alpha"),
        ({"hidden_size": 7}, "input 1 has shape"),
    ],
)
def test_a_recurrent_node_that_says_nonsense_is_refused_before_it_is_built(attrs: dict[str, Any], words: str) -> None:
    """Wrong attributes were ignored, or failed when the network ran."""
    inputs = [np.ones((2, 1, 1), np.float32), np.ones((1, 1, 1), np.float32), np.ones((1, 1, 1), np.float32)]
    with pytest.raises(ModelError, match=words):
        opbuild.compile(model_of("RNN", inputs, **attrs))


def test_an_empty_batch_is_normalised() -> None:
    """InstanceNormalization of no images ended in RunError."""
    one = np.ones(3, np.float32)
    assert on_host("InstanceNormalization", np.zeros((0, 3, 2), np.float32), one, one)[0].shape == (0, 3, 2)


def values(*shape: int) -> Array:
    """Return float32 values of a shape, of both signs."""
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs"),
    [
        ("GlobalMaxPool", [values(1, 2, 3, 2, 2)], {}),
        ("ConvTranspose", [values(1, 4, 5), values(4, 1, 3)], {"group": 2, "strides": [2], "pads": [1, 0]}),
        ("ConvTranspose", [values(1, 2, 3, 3, 2), values(2, 2, 2, 1, 2)], {"group": 2, "dilations": [2, 1, 2]}),
        ("ConvTranspose", [values(1, 4, 3, 3), values(4, 2, 2, 2), values(4)], {"group": 2, "dilations": [2, 2]}),
        ("ConvTranspose", [values(1, 1, 4), values(1, 1, 2)], {"strides": [2], "output_shape": [7], "pads": [0, 3]}),
        ("ConvTranspose", [values(1, 1, 4), values(1, 1, 2)], {"output_shape": [3], "auto_pad": "VALID"}),
        ("PRelu", [values(1, 3), values(2, 1, 1)], {}),
        ("LpPool", [values(1, 1, 5)], {"kernel_shape": [6], "strides": [3]}),
        ("AveragePool", [values(1, 1, 5, 5)], {"kernel_shape": [6, 2], "strides": [2, 1], "count_include_pad": 1}),
        ("AveragePool", [values(1, 2, 1, 3)], {"kernel_shape": [2, 1], "dilations": [2, 1], "pads": [1, 0, 1, 0]}),
        ("MaxPool", [values(1, 1, 5, 5)], {"kernel_shape": [6, 7], "strides": [2, 3]}),
    ],
)
def test_what_onnx_runtime_runs_is_built_and_runs(
    op_type: str, inputs: list[Array], attrs: dict[str, Any], tmp_path: Path
) -> None:
    """These ended in RunError after a good build, or in ShapeError.

    More dimensions, groups, weights that are inputs, an output's shape that decides the padding, a slope that is wider
    than the input, windows that hang over.
    """
    found, expected = built(op_type, inputs, tmp_path, **attrs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_window_that_does_not_fit_says_what_would() -> None:
    """ResNet-50's 7x7 pool of images of 160x256, for which ONNX Runtime crashes: the node, why, and what it needs."""
    with pytest.raises(
        ShapeError, match=r"AveragePool node 'the node'.*dimension 2 has 5 positions and needs at least 7"
    ):
        opbuild.compile(model_of("AveragePool", [values(1, 4, 5, 8)], kernel_shape=[7, 7]))


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(("extent", "positions"), [(6, 0), (7, 1), (5, 0), (4, 1)])
def test_a_window_that_hangs_over_by_strides_has_no_position(op_type: str, extent: int, positions: int) -> None:
    """As in ONNX Runtime: less than a stride gives one position, less than two none."""
    stride = 1 if extent > 5 else 2
    kernel = 7 if extent != 4 else 5
    (found,) = on_host(op_type, values(1, 2, extent), kernel_shape=[kernel], strides=[stride])
    assert found.shape == (1, 2, positions)


def test_one_element_resampled_as_pytorch_does_is_the_first() -> None:
    """pytorch_half_pixel to one element: the text reads position 0, the reference evaluator and kernels read -0.5."""
    sizes = np.array([1, 1, 1, 1])
    for dtype in ("float32", "float64"):
        (found,) = on_host(
            "Resize", f32([[1, 2, 4]]).astype(dtype)[None], None, None, sizes, mode="cubic",
            coordinate_transformation_mode="pytorch_half_pixel",
        )  # fmt: skip
        assert found.tolist() == [[[[1]]]]


def test_a_grid_is_sampled_where_an_extent_is_1() -> None:
    """Mirroring at the borders of one element divided by zero: RunError."""
    grid = np.zeros((1, 1, 2, 2), np.float32)
    x = np.full((1, 1, 1, 1), 5, np.float32)
    (found,) = on_host("GridSample", x, grid, padding_mode="reflection", align_corners=1)
    assert found.tolist() == [[[[5, 5]]]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_determinants_and_grids_keep_their_element_type(dtype: str) -> None:
    """Det of float16 and AffineGrid of float16 and float64 were built, and failed when the network was called."""
    (found,) = on_host("Det", np.array([[[1, 2], [3, 4]], [[2, 0], [0, 3]]], dtype))
    assert found.dtype == dtype
    assert np.allclose(found, [-2, 6])
    theta = np.array([[[1, 0, 0.5], [0, 2, 0]]], dtype)
    for aligned, across, down in ((0, [-2 / 3, 0, 2 / 3], [-0.5, 0.5]), (1, [-1, 0, 1], [-1, 1])):
        (grid,) = on_host("AffineGrid", theta, np.array([1, 1, 2, 3]), align_corners=aligned)
        assert grid.dtype == dtype
        expected = [[[x + 0.5, 2 * y] for x in across] for y in down]
        assert np.allclose(grid, [expected], atol=1e-3)


def test_zeros_are_quantised_by_a_scale_of_1() -> None:
    """DynamicQuantizeLinear of zeros only; the text leaves the scale open."""
    found, scale, zero = on_host("DynamicQuantizeLinear", np.zeros(3, np.float32), outputs=3)
    assert (found.tolist(), scale.item(), zero.item()) == ([0, 0, 0], 1, 0)


QUANTIZED = ("uint8", "int8", "uint16", "int16", "int4", "uint4", "float8_e4m3fn", "float8_e5m2", "int32")


@pytest.mark.parametrize("dtype", QUANTIZED)
@pytest.mark.parametrize("scales", ["one", "axis", "blocks"])
@pytest.mark.parametrize("has_zero_point", [False, True])
def test_quantisation_is_what_the_reference_makes_of_it(dtype: str, scales: str, has_zero_point: bool) -> None:
    """Folding a weight of a quantised network loaded onnx's evaluator, which took 140 ms of each such start."""
    random = np.random.default_rng(3)
    shape, attrs = {"one": ((), {}), "axis": ((6,), {"axis": -1}), "blocks": ((4, 2), {"axis": 1, "block_size": 3})}[
        scales
    ]
    scale = random.uniform(0.1, 2, shape).astype(np.float32)
    zero = np.zeros(shape) if "float" in dtype or dtype == "int32" else random.integers(0, 7, shape)
    parameters = (scale, *((zero.astype(numpy_dtype(dtype)),) if has_zero_point else ()))
    x = random.integers(0, 8, (4, 6)).astype(numpy_dtype(dtype))
    compare_with_reference("DequantizeLinear", x, *parameters, **attrs)
    if dtype != "int32" and (has_zero_point or dtype == "uint8"):
        compare_with_reference("QuantizeLinear", random.normal(0, 90, (4, 6)).astype(np.float32), *parameters, **attrs)


def compare_with_reference(op_type: str, *inputs: Array, **attrs: Any) -> None:
    """Compare the output of a node with that of onnx's evaluator."""
    names = tuple(f"i{index}" for index in range(len(inputs)))
    (expected,) = evaluate_reference(Node(op_type, names, ("out",), attrs, "node"), inputs, 21)
    (found,) = on_host(op_type, *inputs, **attrs)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.astype(np.float32).tolist() == expected.astype(np.float32).tolist()


def test_regions_are_pooled_and_classes_drawn() -> None:
    """No backend ran MaxRoiPool and Multinomial, which showed when the network ran."""
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    (found,) = on_host("MaxRoiPool", x, f32(0, 1, 1, 3, 3)[None], pooled_shape=(2, 2))
    assert found.tolist() == [[[[10, 11], [14, 15]]]]
    (drawn,) = on_host("Multinomial", f32([0, -100])[0][None], sample_size=5, seed=1.0)
    assert drawn.tolist() == [[0] * 5]


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4)])
def test_a_softmax_of_nothing_is_nothing(op_type: str, shape: tuple[int, ...]) -> None:
    """The greatest of no elements was an error of numpy while the network ran, whichever axis was empty."""
    for axis in range(len(shape)):
        (found,) = on_host(op_type, np.zeros(shape, np.float32), axis=axis)
        assert (found.shape, found.dtype) == (shape, np.float32)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "uint64", "float16"])
def test_shrink_keeps_its_element_type(dtype: str) -> None:
    """Of integers it gave float32, which ended the call; beyond 2^24 it would have lost digits too."""
    greatest = 10_000 if dtype == "float16" else np.iinfo(dtype).max
    x = np.array([0, 1, 2, 3, greatest], dtype)
    (found,) = on_host("Shrink", x, lambd=1.5, bias=1.0)
    assert found.dtype == x.dtype
    assert found.tolist() == [0, 0, 1, 2, int(x[-1]) - 1 if dtype != "float16" else 10_000]
    assert on_host("Shrink", x)[0].tolist() == x.tolist()


@pytest.mark.parametrize("op_type", ["Sum", "Mean", "Swish"])
def test_several_operations_of_float16_are_rounded_once(op_type: str) -> None:
    """The host rounded after each addition and product; a kernel rounds once, at the end."""
    rng = np.random.default_rng(5)
    inputs = [rng.normal(0, 3, 500).astype(np.float16) for _ in range(1 if op_type == "Swish" else 5)]
    attrs = {"alpha": 1.7} if op_type == "Swish" else {}
    (found,) = on_host(op_type, *inputs, **attrs)
    (wide,) = on_host(op_type, *(each.astype(np.float32) for each in inputs), **attrs)
    np.testing.assert_array_equal(found, wide.astype(np.float16))


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_a_bound_may_have_a_dimension_more_than_what_it_bounds(dtype: str) -> None:
    """A bound is a scalar however it is written, and the result has the shape of the first input."""
    x, low, high = np.array(7, dtype), np.array([1], dtype), np.array([[5]], dtype)
    for bounds, expected in (((low, high), 5), ((low,), 7), ((None, high), 5), ((), 7)):
        (found,) = on_host("Clip", x, *bounds)
        assert (found.shape, found.dtype, found.item()) == ((), x.dtype, expected)
