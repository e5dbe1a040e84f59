"""Attention to a cache that has room reads the keys that are there, whatever lies behind them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from kernels.harness import run_program
from kernels.one_operator import assert_same
from opbuild.backend.host.evaluate import evaluate
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes.pipeline import optimize
from opbuild.lowering.lower import lower
from opbuild.program import KernelCall, Program
from opbuild.target.host import host_level
from opbuild.target.level import LEVELS
from support.tiers import halved

Array = npt.NDArray[Any]
BELOW = [level for level in LEVELS[: LEVELS.index(host_level()) + 1] if level.name in ("x86-64-v3", host_level().name)]
BATCH, HEADS = 2, 3


def model_of(rows: int, room: int, size: int, *, is_causal: bool) -> onnx.ModelProto:
    """Return an attention of queries ``(batch, heads, rows, size)`` to keys and values with room.

    ``count``, ``(batch, 1, 1, 1)``, says how many keys there are. ``seen``, ``(batch, 1, rows, 1)``, says how many of
    them each query sees, if it is causal; else it sees all.
    """
    counts = {"count": [BATCH, 1, 1, 1], **({"seen": [BATCH, 1, rows, 1]} if is_causal else {})}
    nodes = [
        helper.make_node("Less", ["keys", "seen" if is_causal else "count"], ["shown"]),
        helper.make_node("Less", ["places", "count"], ["is_there"]),
    ]
    return _attention(nodes, (rows, room, size), counts)


def _attention(
    conditions: list[onnx.NodeProto], extents: tuple[int, int, int], numbers: dict[str, list[int]]
) -> onnx.ModelProto:
    """Return an attention to the keys that are ``shown`` and the values that are there.

    ``conditions`` compute which these are from further inputs of the shapes given; ``extents`` are of rows, keys and
    elements.
    """
    rows, room, size = extents
    shape = [BATCH, HEADS, room, size]
    inputs = {"q": [BATCH, HEADS, rows, size], "k": shape, "v": shape}
    nodes = [
        helper.make_node("Transpose", ["k"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "turned"], ["products"]),
        *conditions,
        helper.make_node("Where", ["shown", "products", "hidden"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("Where", ["is_there", "v", "zero"], ["values"]),
        helper.make_node("MatMul", ["weights", "values"], ["y"]),
    ]
    known = {
        "keys": np.arange(room),
        "places": np.arange(room)[:, None],
        "hidden": np.float32(-np.inf),
        "zero": np.float32(0),
    }
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, each) for name, each in inputs.items()]
    ports += [helper.make_tensor_value_info(name, TensorProto.INT64, each) for name, each in numbers.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, inputs["q"])
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in known.items()]
    graph = helper.make_graph(nodes, "cached", ports, [result], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def feeds_of(rows: int, room: int, size: int, *, is_causal: bool) -> dict[str, Array]:
    """Return inputs; the batches have half of the keys that there is room for, and all but one."""
    rng = np.random.default_rng(rows * room + size)
    feeds = {"q": rng.standard_normal((BATCH, HEADS, rows, size)).astype(np.float32)}
    count = np.array([max(1, room // 2), max(1, room - 1)])
    for name in "kv":
        feeds[name] = rng.standard_normal((BATCH, HEADS, room, size)).astype(np.float32)
        for batch, there in enumerate(count):
            feeds[name][batch, :, there:] = rng.choice([np.nan, np.inf, -np.inf], (HEADS, room - there, size))
    feeds["count"] = count.reshape(BATCH, 1, 1, 1)
    if is_causal:
        seen = np.maximum(count[:, None] - np.arange(rows)[::-1], 1)
        feeds["seen"] = seen.reshape(BATCH, 1, rows, 1)
    return feeds


def expected(feeds: dict[str, Array]) -> Array:
    """Return the output, in float64; a weight of 0 times what is no number is NaN."""
    keys = np.arange(feeds["k"].shape[2])
    with np.errstate(invalid="ignore"):
        products = feeds["q"].astype(np.float64) @ feeds["k"].astype(np.float64).transpose(0, 1, 3, 2)
        scores = np.where(keys < feeds.get("seen", feeds["count"]), products, -np.inf)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        values = np.where(keys[:, None] < feeds["count"], feeds["v"].astype(np.float64), 0)
        return np.asarray((powers / powers.sum(-1, keepdims=True)) @ values, np.float32)


def program_of(model: onnx.ModelProto, level: Any) -> Program:
    """Return a model's program for a level."""
    return lower(optimize(load_model(model).bind({}, evaluate), evaluate), level)


@halved
@pytest.mark.parametrize("level", BELOW, ids=lambda level: level.name)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("room", "size"), [(9, 64), (33, 80), (70, 64), (200, 128)])
@pytest.mark.parametrize("rows", [1, 3, 8, 20, 40])
def test_the_keys_that_are_there_are_all_that_is_read(
    rows: int, room: int, size: int, is_causal: bool, level: Any
) -> None:
    """Results are numbers though NaN and infinities lie behind; it is one kernel, and nothing outside is written."""
    program, feeds = (
        program_of(model_of(rows, room, size, is_causal=is_causal), level),
        feeds_of(rows, room, size, is_causal=is_causal),
    )
    calls = [call.desc for call in program.calls if isinstance(call, KernelCall)]
    attention = [desc for desc in calls if desc.family == "attention"]
    assert [("bound" in desc.attrs, len(calls)) for desc in attention] == [(True, 1)]
    found = run_program(program, feeds, level=level)["y"]
    assert np.isfinite(found).all()
    assert_same(found, expected(feeds))


@pytest.mark.parametrize(("room", "size"), [(5, 64), (40, 16), (40, 6)])
def test_small_caches_are_computed_one_by_one(room: int, size: int) -> None:
    """Fewer keys than are summed up at once, or fewer elements than a vector has: what lies behind is cleared."""
    feeds = feeds_of(2, room, size, is_causal=False)
    program = program_of(model_of(2, room, size, is_causal=False), host_level())
    assert_same(run_program(program, feeds)["y"], expected(feeds))


@pytest.mark.parametrize("rows", [8, 40])
def test_what_is_there_and_hidden_shows_if_it_is_no_number(rows: int) -> None:
    """A weight of 0 times an infinite value is NaN, as in the operators one by one."""
    feeds = feeds_of(rows, 70, 64, is_causal=True)
    last = int(feeds["count"][1, 0, 0, 0]) - 1
    feeds["v"][1, 2, last, 5] = np.inf
    found = run_program(program_of(model_of(rows, 70, 64, is_causal=True), host_level()), feeds)["y"]
    assert_same(found, expected(feeds))
    assert np.isnan(found[1, 2, :-1, 5]).all()
    assert np.isfinite(np.delete(found, 5, -1)).all()


def windowed_model(rows: int, room: int, size: int) -> onnx.ModelProto:
    """Return an attention of which each query sees the keys from ``first`` to ``seen``.

    Values are zeros before ``start`` and behind ``count``.
    """
    column, number = [BATCH, 1, rows, 1], [BATCH, 1, 1, 1]
    numbers = {"first": column, "seen": column, "start": number, "count": number}
    nodes = [
        helper.make_node("Less", ["keys", "seen"], ["is_before"]),
        helper.make_node("GreaterOrEqual", ["keys", "first"], ["is_behind"]),
        helper.make_node("And", ["is_before", "is_behind"], ["shown"]),
        helper.make_node("Less", ["places", "count"], ["is_inside"]),
        helper.make_node("GreaterOrEqual", ["places", "start"], ["is_begun"]),
        helper.make_node("And", ["is_inside", "is_begun"], ["is_there"]),
    ]
    return _attention(nodes, (rows, room, size), numbers)


def windowed_feeds(rows: int, room: int, size: int, window: int) -> dict[str, Array]:
    """Return inputs: no key outside all windows is a number, nor is its value."""
    rng = np.random.default_rng(rows * room + window)
    seen = np.array([room * 2 // 3, room - 1])[:, None] - np.arange(rows)[::-1]
    feeds = {"seen": np.maximum(seen, 1), "first": np.maximum(seen - window, 0)}
    feeds = {name: each.reshape(BATCH, 1, rows, 1) for name, each in feeds.items()}
    feeds |= {"start": feeds["first"].min(2, keepdims=True), "count": feeds["seen"].max(2, keepdims=True)}
    feeds["q"] = rng.standard_normal((BATCH, HEADS, rows, size)).astype(np.float32)
    for name in "kv":
        feeds[name] = rng.standard_normal((BATCH, HEADS, room, size)).astype(np.float32)
        for batch in range(BATCH):
            feeds[name][batch, :, : feeds["start"].flat[batch]] = np.nan
            feeds[name][batch, :, feeds["count"].flat[batch] :] = np.inf
    return feeds


def windowed(feeds: dict[str, Array]) -> Array:
    """Return the output, in float64."""
    keys = np.arange(feeds["k"].shape[2])
    with np.errstate(invalid="ignore"):
        products = feeds["q"].astype(np.float64) @ feeds["k"].astype(np.float64).transpose(0, 1, 3, 2)
    scores = np.where((keys < feeds["seen"]) & (keys >= feeds["first"]), products, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    is_there = (keys[:, None] < feeds["count"]) & (keys[:, None] >= feeds["start"])
    values = np.where(is_there, feeds["v"].astype(np.float64), 0)
    return np.asarray((powers / powers.sum(-1, keepdims=True)) @ values, np.float32)


@halved
@pytest.mark.parametrize("level", BELOW, ids=lambda level: level.name)
@pytest.mark.parametrize(("room", "window"), [(33, 5), (70, 64), (200, 16), (200, 190)])
@pytest.mark.parametrize("rows", [1, 3, 20, 40])
def test_keys_before_all_windows_are_not_read(rows: int, room: int, window: int, level: Any) -> None:
    """Results are numbers though NaN lie before the first window and infinities behind the last one."""
    program, feeds = program_of(windowed_model(rows, room, 64), level), windowed_feeds(rows, room, 64, window)
    calls = [call.desc for call in program.calls if isinstance(call, KernelCall)]
    assert [sorted({*desc.attrs} & {"seen", "since", "bound", "start"}) for desc in calls] == [
        ["bound", "seen", "since", "start"]
    ]
    found = run_program(program, feeds, level=level)["y"]
    assert np.isfinite(found).all()
    assert_same(found, windowed(feeds))


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_a_key_that_is_seen_has_its_weight_though_its_value_is_zeros(rows: int) -> None:
    """Where fewer values are there than keys are seen, weights are those of all that are seen."""
    feeds = windowed_feeds(rows, 70, 64, 30)
    feeds["start"] += 4
    feeds["count"] -= 7
    found = run_program(program_of(windowed_model(rows, 70, 64), host_level()), feeds)["y"]
    assert_same(found, windowed(feeds))


def test_values_are_zeros_alone_where_no_key_is_hidden() -> None:
    """A softmax of all scores is not one of the keys that are there."""
    model, feeds = model_of(1, 70, 64, is_causal=False), feeds_of(1, 70, 64, is_causal=False)
    softmax = next(node for node in model.graph.node if node.op_type == "Softmax")
    softmax.input[0] = "products"
    feeds = {name: np.nan_to_num(each, posinf=1, neginf=-1) for name, each in feeds.items()}
    found = run_program(program_of(model, host_level()), feeds)["y"]
    assert_same(found, expected(feeds | {"seen": np.full((1, 1, 1, 1), 70)}))
