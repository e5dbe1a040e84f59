"""Shuffles of channels: found in graphs, and lowered to an order of channels wherever readers can look channels up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kernels.harness import check_canaries, guarded, run_desc, run_program
from kernels.lowered import Array, random
from kernels.one_node import assert_close, convolve
from opbuild.families.shuffle.lowering import in_order
from opbuild.graph.passes.patterns import fuse_channel_shuffle
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import channel_table
from opbuild.lowering.lower import lower
from opbuild.program import View
from opbuild.target.host import host_level
from support.machines import choose_here
from support.tiers import halved


def shuffled(x: Array, groups: int) -> Array:
    """Return the channels of x shuffled."""
    n, c, *rest = x.shape
    return x.reshape(n, groups, c // groups, *rest).swapaxes(1, 2).reshape(x.shape)


def graph_of(
    x: Array, before: Sequence[Node], after: Sequence[Node], types: dict[str, Array], constants: dict[str, Array]
) -> Graph:
    """Return a graph that shuffles value ``a`` to ``b`` in three groups, between other nodes."""
    n, c, *rest = types["a"].shape
    parts, turned = (n, 3, c // 3, *rest), (n, c // 3, 3, *rest)
    known = {**constants, "s1": np.array(parts), "s2": np.array(types["a"].shape)}
    order = (0, 2, 1, *range(3, 3 + len(rest)))
    nodes = (
        *before,
        Node("Reshape", ("a", "s1"), ("a1",), {}, "split"),
        Node("Transpose", ("a1",), ("a2",), {"perm": order}, "swap"),
        Node("Reshape", ("a2", "s2"), ("b",), {}, "join"),
        *after,
    )
    arrays = {**known, **types, "a1": np.empty(parts, "f4"), "a2": np.empty(turned, "f4"), "x": x, "b": types["a"]}
    kinds = {name: TensorType(str(array.dtype), array.shape) for name, array in arrays.items()}
    last = nodes[-1].outputs[0]
    return Graph("g", nodes, ("x",), (last,), kinds, known, 21)


def families(graph: Graph) -> list[str]:
    """Return the families that a graph's program calls."""
    return [call.desc.family for call in lower(graph, host_level()).calls]  # type: ignore[union-attr]


def run(graph: Graph, x: Array) -> Array:
    """Return a graph's only output."""
    return run_program(lower(graph, host_level()), {"x": x})[graph.outputs[0]]


def convolution(inputs: str, output: str, group: int, pads: int = 0, **attrs: Any) -> Node:
    """Return a Conv node."""
    return Node("Conv", tuple(inputs.split()), (output,), {"group": group, "pads": (pads,) * 4, **attrs}, output)


@halved
@pytest.mark.parametrize("channels", [24, 48, 51])
@pytest.mark.parametrize("images", [1, 2])
def test_a_shuffle_between_grouped_convolutions_costs_no_call(channels: int, images: int) -> None:
    """The depthwise convolution keeps the order in which channels lie, the grouped one looks them up."""
    x = random(images, channels, 7, 9)
    w1, w2 = random(channels, channels // 3, 1, 1, seed=1), random(channels, 1, 3, 3, seed=2)
    w3, bias = random(15, channels // 3, 1, 1, seed=3), random(channels, seed=4)
    a = convolve(x, w1, group=3).astype(np.float32)
    c = convolve(shuffled(a, 3), w2, bias, group=channels, pads=(1, 1, 1, 1)).astype(np.float32)
    y = convolve(c, w3, group=3)
    graph = fuse_channel_shuffle(
        graph_of(
            x,
            [convolution("x w1", "a", 3)],
            [convolution("b w2 bias", "c", channels, 1), convolution("c w3", "y", 3)],
            {"a": a, "c": c, "y": y.astype(np.float32)},
            {"w1": w1, "w2": w2, "w3": w3, "bias": bias},
        )
    )
    assert [node.op_type for node in graph.nodes] == ["Conv", "ChannelShuffle", "Conv", "Conv"]
    expected = ["to_blocked", "conv_grouped", "conv_depthwise", "conv_grouped", "from_blocked"]
    assert families(graph) == [family for family in expected for _ in range(images)]
    assert_close(run(graph, x), y)


def test_readers_that_cannot_look_channels_up_get_them_in_order() -> None:
    """A pool and a depthwise convolution whose result leaves the network read a shuffled copy."""
    x, w1, w2 = random(1, 24, 6, 8), random(24, 8, 1, 1, seed=1), random(24, 1, 1, 1, seed=2)
    a = convolve(x, w1, group=3).astype(np.float32)
    for node, y in (
        (Node("Relu", ("b",), ("y",), {}, "relu"), np.maximum(shuffled(a, 3), 0)),
        (convolution("b w2", "y", 24), convolve(shuffled(a, 3), w2, group=24)),
    ):
        types = {"a": a, "y": y.astype(np.float32)}
        graph = fuse_channel_shuffle(graph_of(x, [convolution("x w1", "a", 3)], [node], types, {"w1": w1, "w2": w2}))
        assert families(graph).count("shuffle") == 1
        assert_close(run(graph, x), y)


@pytest.mark.parametrize("shape", [(2, 12, 3, 4), (1, 9, 5)])
def test_a_shuffle_of_a_plain_value_is_a_copy(shape: tuple[int, ...]) -> None:
    """Where nothing lies in blocks, one strided copy shuffles."""
    x = random(*shape)
    graph = fuse_channel_shuffle(graph_of(x, [Node("Identity", ("x",), ("a",), {}, "same")], [], {"a": x}, {}))
    assert families(graph) == ["copy"]
    np.testing.assert_array_equal(run(graph, x), shuffled(x, 3))


def test_what_looks_like_a_shuffle_and_is_none_stays() -> None:
    """Another order of dimensions is left alone."""
    x = random(1, 12, 3, 4)
    graph = graph_of(x, [Node("Identity", ("x",), ("a",), {}, "same")], [], {"a": x}, {})
    nodes = tuple(
        node.with_(attrs={"perm": (0, 1, 2, 4, 3)}) if node.op_type == "Transpose" else node for node in graph.nodes
    )
    changed = graph.with_(nodes=nodes)
    assert fuse_channel_shuffle(changed).nodes == nodes


@pytest.mark.parametrize(("channels", "rows", "columns"), [(5, 1, 1), (40, 3, 5), (16, 0, 4), (64, 32, 33)])
def test_the_copy_in_order_writes_its_output_and_nothing_else(channels: int, rows: int, columns: int) -> None:
    """Every lane is written, those beyond the channels with what they held."""
    order = np.random.default_rng(1).permutation(channels).astype(np.int32)
    table = channel_table(order)
    x = random(len(table) // 16, rows, columns, 16)
    dims = ((16, 1), (columns, 16), (rows, 16 * columns), (len(x), 16 * columns * rows))
    view = View(0, 0, dims)
    desc: OpDesc = in_order((view, View(1, 0, ((len(table), 1),)), view), "float32", choose_here)[0]
    out = guarded(x.shape)
    run_desc(desc, x, table, out)
    check_canaries(out)
    flat = x.transpose(0, 3, 1, 2).reshape(len(table), rows, columns)
    expected = flat[table].reshape(len(x), 16, rows, columns).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(out.view, expected)
