"""Convolutions whose weights are given to the call: packed by copies, then computed by the same kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kernels.harness import check_canaries, guarded, run_desc, run_program
from kernels.lowered import Array
from kernels.lowered import program_of as lowered
from kernels.one_operator import check, model_of, program_of, random
from opbuild.families.weight_blocks import family as weight_blocks
from opbuild.graph.passes.infer import infer_node
from opbuild.graph.types import Node, TensorType
from opbuild.graph.weight_layout import in_blocks
from opbuild.program import KernelCall
from support.tiers import halved

CONVOLUTIONS: tuple[tuple[Sequence[int], Sequence[int], dict[str, Any]], ...] = (
    ((1, 1, 5, 5), (1, 1, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 20, 9, 8), (33, 20, 3, 3), {"pads": [1, 0, 1, 2], "strides": [2, 1]}),
    ((1, 32, 7, 7), (16, 32, 3, 3), {"dilations": [2, 2]}),
    ((2, 40, 6), (7, 40, 3), {}),
    ((1, 20, 6, 6), (20, 1, 3, 3), {"group": 20, "pads": [1, 1, 1, 1]}),
    ((1, 24, 6, 6), (36, 6, 3, 2), {"group": 4}),
    ((1, 3, 8, 8), (5, 3, 1, 1), {"auto_pad": "SAME_UPPER"}),
)

TRANSPOSED: tuple[tuple[Sequence[int], Sequence[int], dict[str, Any]], ...] = (
    ((1, 1, 3, 3), (1, 2, 3, 3), {}),
    ((2, 20, 4, 5), (20, 18, 3, 2), {"strides": [3, 2], "pads": [1, 0, 0, 1]}),
    ((1, 6, 5), (6, 17, 3), {"strides": [2]}),
    ((1, 8, 4, 4), (8, 3, 3, 3), {"group": 4, "strides": [2, 2], "dilations": [1, 1]}),
    ((1, 20, 4, 5), (20, 1, 5, 3), {"group": 20, "strides": [2, 1], "pads": [2, 1, 2, 1]}),
    ((1, 5, 4, 4), (5, 3, 2, 2), {"dilations": [2, 2]}),
)


BY_KERNELS: tuple[tuple[str, Sequence[int], Sequence[int], dict[str, Any], set[str]], ...] = (
    ("Conv", (2, 32, 5, 6), (48, 32, 3, 2), {}, {"conv"}),
    ("Conv", (1, 16, 5, 6), (32, 16, 1, 1), {"strides": [2, 2]}, {"conv"}),
    ("Conv", (2, 32, 9), (16, 32, 3), {}, {"conv"}),
    ("Conv", (2, 16, 23, 25), (32, 16, 3, 3), {"pads": [1, 1, 1, 1]}, {"winograd"}),
    ("Conv", (9, 128, 7, 8), (128, 128, 3, 3), {"pads": [1, 1, 1, 1]}, {"winograd"}),
    ("ConvTranspose", (2, 48, 5, 6), (48, 32, 3, 2), {"pads": [1, 0, 1, 0]}, {"conv"}),
    ("ConvTranspose", (2, 16, 9), (16, 32, 3), {}, {"conv"}),
    ("ConvTranspose", (2, 48, 22, 17), (48, 16, 3, 3), {"pads": [1, 1, 1, 1]}, {"winograd"}),
    ("ConvTranspose", (2, 16, 17, 19), (16, 32, 3, 3), {"pads": [0, 2, 1, 0]}, {"winograd"}),
)
"""Operator, data, weights whose channels are whole blocks, attributes, and the family that reads them."""


@pytest.mark.parametrize(("op_type", "shape", "weights", "attrs", "families"), BY_KERNELS)
def test_whole_blocks_of_weights_are_brought_there_by_a_kernel(
    op_type: str, shape: Sequence[int], weights: Sequence[int], attrs: dict[str, Any], families: set[str]
) -> None:
    """As they are, turned, or transformed as Winograd's algorithm reads them."""
    inputs = [random(*shape), random(*weights, seed=1)]
    program = program_of(model_of(op_type, inputs, **attrs)[0])
    called = {call.desc.family for call in program.calls if isinstance(call, KernelCall)}
    assert called >= families | {"weight_blocks"}
    check(op_type, inputs, **attrs)


@halved
@pytest.mark.parametrize(("shape", "weights", "attrs"), CONVOLUTIONS)
@pytest.mark.parametrize("biased", [False, True])
def test_convolutions(shape: Sequence[int], weights: Sequence[int], attrs: dict[str, Any], biased: bool) -> None:
    """Dense, depthwise and grouped, in one dimension and in two; channels that fill their blocks or do not."""
    inputs = [random(*shape), random(*weights, seed=1), *([random(weights[0], seed=2)] if biased else [])]
    check("Conv", inputs, **attrs)


@halved
@pytest.mark.parametrize(("shape", "weights", "attrs"), TRANSPOSED)
@pytest.mark.parametrize("biased", [False, True])
def test_transposed_convolutions(
    shape: Sequence[int], weights: Sequence[int], attrs: dict[str, Any], biased: bool
) -> None:
    """Each phase takes its own taps, in reverse."""
    channels = weights[1] * attrs.get("group", 1)
    inputs = [random(*shape), random(*weights, seed=1), *([random(channels, seed=2)] if biased else [])]
    check("ConvTranspose", inputs, **attrs)


def test_known_weights_may_have_a_bias_that_is_not() -> None:
    """Each is packed on its own way."""
    inputs = [random(1, 20, 6, 6), random(18, 20, 3, 3, seed=1), random(18, seed=2)]
    check("Conv", inputs, (1,))
    check("Conv", inputs, (2,))


def test_an_infinite_weight_spoils_only_its_own_channel() -> None:
    """Lanes beyond the channels hold zeros, whatever memory had before."""
    x, weights = random(1, 5, 4, 4), random(3, 5, 1, 1, seed=1)
    weights[1, 2] = np.inf
    (found,) = check("Conv", [x, weights])
    assert np.isfinite(found[:, [0, 2]]).all()


@pytest.mark.parametrize("epilogue", [False, True])
def test_outputs_that_no_tap_reaches_are_the_bias(epilogue: bool) -> None:
    """A stride beyond the taps, with weights that are known and that are not, with a bias and without."""
    inputs = [random(2, 20, 4, 5), random(20, 18, 1, 2, seed=1), *([random(18, seed=2)] if epilogue else [])]
    for known in ((), (1,)):
        (found,) = check("ConvTranspose", inputs, known, strides=[2, 3], output_padding=[1, 0])
        expected = inputs[2] if epilogue else np.zeros(18, np.float32)
        np.testing.assert_array_equal(found[:, :, 1], np.broadcast_to(expected[:, None], (2, 18, found.shape[3])))


@halved
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("tile", [2, 4])
def test_blocks_are_transformed_to_the_same_bits_as_rows(tile: int, turned: bool) -> None:
    """Turned or not: the sums of Winograd's transform are the same ones."""
    rows = random(48, 32, 3, 3)
    outer, inner = (32, 48) if turned else (48, 32)
    shape = ((tile + 2) ** 2, outer // 16, inner, 16)
    wanted, found = guarded(shape), guarded(shape)
    run_desc(weight_blocks.describe(9, turned, tile), rows.reshape(48, -1), wanted)
    run_desc(weight_blocks.describe(9, turned, tile, blocked=True), laid(rows), found)
    check_canaries(found)
    np.testing.assert_array_equal(found.view, wanted.view)


def laid(array: Array) -> Array:
    """Return weights in blocks."""
    return in_blocks(array, 16, lambda shape: np.empty(shape, np.float32))


IN_BLOCKS: tuple[tuple[str, Sequence[int], Sequence[int], dict[str, Any]], ...] = (
    ("Conv", (2, 32, 5, 6), (48, 32, 3, 2), {}),
    ("Conv", (1, 16, 5, 6), (32, 16, 1, 1), {"strides": [2, 2]}),
    ("Conv", (2, 16, 23, 25), (32, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
    ("ConvTranspose", (2, 48, 5, 6), (48, 32, 3, 2), {"pads": [1, 0, 1, 0]}),
    ("ConvTranspose", (2, 48, 5, 6), (48, 16, 1, 1), {}),
    ("ConvTranspose", (2, 32, 4, 5), (32, 48, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("ConvTranspose", (2, 32, 4, 5), (32, 16, 5, 3), {"strides": [3, 2], "dilations": [1, 2]}),
    ("ConvTranspose", (1, 32, 4, 5), (32, 16, 1, 1), {"strides": [2, 2], "output_padding": [1, 1]}),
    ("ConvTranspose", (2, 48, 22, 17), (48, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
    ("Conv", (2, 32, 5, 6), (48, 16, 3, 3), {"group": 2}),
)


@pytest.mark.parametrize(("op_type", "shape", "weights", "attrs"), IN_BLOCKS)
def test_weights_that_lie_in_blocks_give_the_same_bits(
    op_type: str, shape: Sequence[int], weights: Sequence[int], attrs: dict[str, Any]
) -> None:
    """They are read there, turned, or transformed; what reads no blocks gets them out of there."""
    x, w = random(*shape), random(*weights, seed=1)
    kinds = [TensorType("float32", each.shape) for each in (x, w)]
    (result,) = infer_node(Node(op_type, ("x", "w"), ("y",), attrs), kinds, [None, None])
    outputs = {"plain": ("float32", w.shape), "y": ("float32", result.shape)}
    first = Node("PlainWeights", ("w",), ("plain",), domain="opbuild", name="plain")
    moved = lowered([first, Node(op_type, ("x", "plain"), ("y",), attrs, "node")], {"x": x, "w": laid(w)}, outputs)
    rows = lowered([Node(op_type, ("x", "w"), ("y",), attrs, "node")], {"x": x, "w": w}, {"y": outputs["y"]})
    found = run_program(moved, {"x": x, "w": laid(w)})["y"]
    np.testing.assert_array_equal(found, run_program(rows, {"x": x, "w": w})["y"])
    if attrs.get("group", 1) == 1:
        buffer = next(port.buffer for port in moved.inputs if port.name == "w")
        calls = [call for call in moved.calls if isinstance(call, KernelCall)]
        assert not any(call.desc.family == "copy" and call.views[0].buffer == buffer for call in calls)


def test_weights_in_blocks_are_plain_where_something_else_reads_them() -> None:
    """A copy brings them out."""
    w = random(32, 48, 3, 2)
    outputs = {"plain": ("float32", w.shape), "y": ("float32", w.shape)}
    nodes = [Node("PlainWeights", ("w",), ("plain",), domain="opbuild", name="plain"),
             Node("Neg", ("plain",), ("y",), name="neg")]  # fmt: skip
    program = lowered(nodes, {"w": laid(w)}, outputs)
    np.testing.assert_array_equal(run_program(program, {"w": laid(w)})["y"], -w)
