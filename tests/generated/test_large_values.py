"""Operators that normalise or add up rows of large and nearly equal values, against 80 bits; sums whose order matters.

``OPBUILD_FUZZ=5000`` tries so many.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import opbuild
from generated.random_large import Array, draw
from generated.ways import every_way, outputs_of
from support.fuzzing import CAMPAIGN, check_seeds
from support.tiers import halved, spans

pytestmark = pytest.mark.timeout(14400 if CAMPAIGN else 300)


def try_case(seed: int, folder: Path) -> tuple[str, str]:
    """Return the outcome of a seed, built and run plainly and in the mode that rounds once."""
    case = draw(seed)
    for mode in ("high_performance", "high_precision"):
        data = case.model.SerializeToString()
        network = opbuild.compile(data, cache_path=folder, num_threads=1, op_select_implmode=mode)
        said = case.fault(outputs_of(network, {"x": case.x})[0])
        if said:
            return "wrong", f"{mode}: {said}"
    return "right", ""


@pytest.mark.slow
@pytest.mark.parametrize("seeds", spans(18, 4))
def test_rows_of_large_and_nearly_equal_values_keep_their_digits(seeds: range, tmp_path: Path) -> None:
    """No sum is put in another order where the order is what keeps digits."""
    check_seeds("large values", lambda seed: try_case(seed, tmp_path), seeds)


def model(nodes: list[onnx.NodeProto], x: Array, y: tuple[int, ...], **constants: Array) -> onnx.ModelProto:
    """Return a model of an input x and an output y."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        nodes,
        "order",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, y)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@halved
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("large", [1e6, 1e8, 3e38])
def test_the_logarithm_of_a_softmax_of_equal_numbers_is_that_of_their_count(
    large: float, dtype: str, axis: int, tmp_path: Path
) -> None:
    """Of [1e6, 1e6] it was -0.6875, of [1e8, 1e8] 0: the logarithm was added to the greatest number first."""
    x = np.full((2, 2), large, dtype)
    node = helper.make_node("LogSoftmax", ["x"], ["y"], axis=axis)
    for way, (got,) in every_way(model([node], x, x.shape), {"x": x}, tmp_path).items():
        np.testing.assert_allclose(got, -np.log(2), rtol=1e-6, err_msg=way)


@pytest.mark.parametrize("large", [0.0, 1e6, 1e8])
def test_cross_entropy_of_large_scores_is_that_of_their_differences(large: float, tmp_path: Path) -> None:
    """Through ONNX's loss, which is made of the logarithm of a softmax."""
    x = np.float32([[large, large], [large, large]])
    node = helper.make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["y"], reduction="none")
    found = every_way(model([node], x, (2,), labels=np.array([0, 1])), {"x": x}, tmp_path)
    for way, (got,) in found.items():
        np.testing.assert_allclose(got, np.log(2), rtol=1e-6, err_msg=way)


@pytest.mark.slow
@pytest.mark.parametrize("large", [1e6, 1e8])
def test_losses_of_torch_and_mindspore_are_those_of_differences(
    large: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``cross_entropy`` by the back end of torch.compile, and MindSpore's losses."""
    torch = pytest.importorskip("torch", reason="the back end of torch.compile needs torch")
    import opbuild.mindspore as ms
    from opbuild.mindspore import nn, ops

    monkeypatch.chdir(tmp_path)
    loss = torch.compile(torch.nn.functional.cross_entropy, backend="opbuild", options={"cache_path": str(tmp_path)})
    scores, labels = np.full((2, 2), large, np.float32), np.array([0, 1])
    with torch.no_grad():
        found = [float(loss(torch.from_numpy(scores), torch.from_numpy(labels)))]
    x, wanted = ms.Tensor(scores), ms.Tensor(labels.astype(np.int32))
    found += [float(each(x, wanted).asnumpy()) for each in (ops.cross_entropy, nn.CrossEntropyLoss())]
    found += [float(ops.nll_loss(ops.log_softmax(x), wanted).asnumpy())]
    np.testing.assert_allclose(found, np.log(2), rtol=1e-6)


@pytest.mark.slow
def test_sums_that_round_or_compensate_keep_their_order(tmp_path: Path) -> None:
    """A number is rounded by a large one that is added and taken away again; what a sum loses is found by differences.

    Alone, and behind a convolution, into whose bias both would go and leave nothing of each other.
    """
    x = np.random.default_rng(0).uniform(-100, 100, (1, 3, 5, 7)).astype(np.float32)
    large, identity = np.float32(1.5 * 2**23), np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1)
    steps = [helper.make_node("Add", ["a", "c"], ["b"]), helper.make_node("Sub", ["b", "c"], ["y"])]
    for before in (helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Conv", ["x", "w"], ["a"])):
        wanted = np.rint(-x if before.op_type == "Neg" else x)
        found = every_way(model([before, *steps], x, x.shape, c=large, w=identity), {"x": x}, tmp_path)
        for way, (got,) in found.items():
            np.testing.assert_array_equal(got, wanted, err_msg=f"{before.op_type}, {way}")
    lost = [
        helper.make_node("Add", ["x", "c"], ["s"]),
        helper.make_node("Sub", ["s", "c"], ["t"]),
        helper.make_node("Sub", ["x", "t"], ["y"]),
    ]
    for way, (got,) in every_way(model(lost, x, x.shape, c=large), {"x": x}, tmp_path).items():
        np.testing.assert_array_equal(got, x - np.rint(x), err_msg=way)


@pytest.mark.slow
def test_the_fraction_of_a_large_number_is_what_it_is(tmp_path: Path) -> None:
    """``x - floor(x)`` and the remainder by 1 are exact, in whatever chain."""
    x = np.float32([0.75, 2**23 + 0.5, 2.0**22 + 0.25, 2.0**30, 1e30, -1e-30, -(2.0**22) - 0.25]).reshape(1, -1)
    nodes = [helper.make_node("Floor", ["x"], ["f"]), helper.make_node("Sub", ["x", "f"], ["y"])]
    for way, (got,) in every_way(model(nodes, x, x.shape), {"x": x}, tmp_path).items():
        np.testing.assert_array_equal(got, x - np.floor(x), err_msg=way)
    node = helper.make_node("Mod", ["x", "m"], ["y"], fmod=1)
    for way, (got,) in every_way(model([node], x, x.shape, m=np.float32(3)), {"x": x}, tmp_path).items():
        np.testing.assert_array_equal(got, np.fmod(x, np.float32(3)), err_msg=way)
