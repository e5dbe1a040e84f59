"""com.microsoft's Attention with one buffer for past and present, against ONNX Runtime with a cache that grows.

ONNX Runtime's own CPU kernel takes no shared buffer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import opbuild
from opbuild.errors import UnsupportedOperatorError
from opbuild.runtime.given import continued

pytestmark = pytest.mark.usefixtures("kept_objects")

Array = npt.NDArray[Any]
BATCH, HEADS, SIZE, ROOM = 2, 2, 16, 12
WIDE = HEADS * SIZE
RNG = np.random.default_rng(17)
WEIGHTS = {"w": RNG.standard_normal((WIDE, 3 * WIDE)).astype("f") / 4, "b": RNG.standard_normal(3 * WIDE).astype("f")}


def model(more: dict[str, Array], room: Any, *, shares: bool = True, batch: int = BATCH, **attrs: Any) -> bytes:
    """Return a network of one Attention, of which inputs by name are given besides the weights."""
    shapes = {"x": [batch, "length", WIDE], "past": [2, batch, HEADS, room, SIZE]}
    shapes |= {name: [*each.shape] for name, each in WEIGHTS.items()}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    kinds = {"mask": TensorProto.INT32, "added": TensorProto.FLOAT}
    ports += [helper.make_tensor_value_info(name, kinds[name], [*each.shape]) for name, each in more.items()]
    names = ["x", "w", "b", "mask" if "mask" in more else "", "past", "added" if "added" in more else ""]
    if shares:
        ports.append(helper.make_tensor_value_info("before", TensorProto.INT32, [1]))
        names, attrs = [*names, "before"], {**attrs, "past_present_share_buffer": 1}
    node = helper.make_node("Attention", names, ["y", "present"], "node", "", "com.microsoft", num_heads=HEADS, **attrs)
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "present")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "buffer", ports, results)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def growing(feeds: dict[str, Array], before: int, more: dict[str, Array], **attrs: Any) -> list[Array]:
    """Return the results of ONNX Runtime with a cache of just the earlier keys."""
    whole = model(more, "past", shares=False, batch=len(feeds["x"]), **attrs)
    session = onnxruntime.InferenceSession(whole, providers=["CPUExecutionProvider"])
    return session.run(None, {**WEIGHTS, **feeds, **more, "past": feeds["past"][:, :, :, :before]})


def masks(length: int, total: int) -> dict[str, dict[str, Array]]:
    """Return masks of all forms that ONNX Runtime's CPU kernel takes, and one that is added to the scores."""
    shown = (RNG.random((BATCH, length, total)) < 0.7).astype(np.int32)
    ends = np.array([total, total - 1], np.int32)
    return {
        "none": {},
        "keys": {"mask": (RNG.random((BATCH, total)) < 0.7).astype(np.int32)},
        "queries and keys": {"mask": shown},
        "ends": {"mask": ends},
        "ends and begins": {"mask": np.concatenate([ends, [1, 0]]).astype(np.int32)},
        "added": {"added": np.where(shown, 0, -10000).astype("f")[:, None]},
    }


@pytest.mark.parametrize("form", masks(1, 1))
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_a_buffer_is_read_as_far_as_it_is_filled(form: str, length: int, unidirectional: int, tmp_path: Path) -> None:
    """Behind the keys there is nothing that is looked at or changed; an array for both is written in place."""
    before = 5
    total = before + length
    more = masks(length, total)[form]
    past = RNG.standard_normal((2, BATCH, HEADS, ROOM, SIZE)).astype("f")
    past[:, :, :, before:] = np.nan
    feeds = {"x": RNG.standard_normal((BATCH, length, WIDE)).astype("f"), "past": past}
    as_mask = {"mask": (more["added"][:, 0] == 0).astype(np.int32)} if form == "added" else more
    expected = growing(feeds, before, as_mask, unidirectional=unidirectional)
    network = opbuild.compile(model(more, ROOM, unidirectional=unidirectional), cache_path=tmp_path, wait=True)
    given = {**WEIGHTS, **feeds, **more, "before": np.array([before], np.int32)}
    found = network.run(given)
    np.testing.assert_allclose(found["y"], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["present"][:, :, :, :total], expected[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found["present"][:, :, :, total:], past[:, :, :, total:])
    inside = network.run(given, out={"present": past})
    assert inside["present"] is past
    for name, each in found.items():
        np.testing.assert_array_equal(inside[name], each)
    assert not network.report.host


def test_a_square_mask_hides_by_the_places_of_queries(tmp_path: Path) -> None:
    """It is as large as the buffer; the rows of this call are those behind the earlier keys."""
    square = np.tril(np.ones((ROOM, ROOM), np.int32))
    square[:, 2] = 0
    length, before = 3, 5
    rows = np.tile(square[before : before + length, : before + length], (BATCH, 1, 1))
    past = RNG.standard_normal((2, BATCH, HEADS, ROOM, SIZE)).astype("f")
    feeds = {"x": RNG.standard_normal((BATCH, length, WIDE)).astype("f"), "past": past}
    more = {"mask": np.tile(square, (BATCH, 1, 1, 1))}
    network = opbuild.compile(model(more, ROOM), cache_path=tmp_path, wait=True)
    found = network.run({**WEIGHTS, **feeds, **more, "before": np.array([before], np.int32)})
    expected = growing(feeds, before, {"mask": rows})
    np.testing.assert_allclose(found["y"], expected[0], rtol=1e-4, atol=1e-5)


def test_tokens_behind_a_prompt_copy_no_cache(tmp_path: Path) -> None:
    """Prompt and tokens are written into one array; the copy that begins ``present`` is left out."""
    network = opbuild.compile(model({}, ROOM, batch=1, unidirectional=1), cache_path=tmp_path, wait=True)
    kept, earlier, before = np.empty((2, 1, HEADS, ROOM, SIZE), "f"), np.empty((2, 1, HEADS, 0, SIZE), "f"), 0
    for length in (4, 1, 1, 3):
        x = RNG.standard_normal((1, length, WIDE)).astype("f")
        given = {**WEIGHTS, "x": x, "past": kept, "before": np.array([before], np.int32)}
        found = network.run(given, out={"present": kept})
        y, earlier = growing({"x": x, "past": earlier}, before, {}, unidirectional=1)
        np.testing.assert_allclose(found["y"], y, rtol=1e-4, atol=1e-5)
        before += length
        np.testing.assert_allclose(kept[:, :, :, :before], earlier, rtol=1e-4, atol=1e-5)
    (runner,) = network.runners
    assert [each.place for each in continued(runner.record).values()] == [1]


@pytest.mark.parametrize(("name", "said"), [("past", "needs past"), ("before", "needs past")])
def test_a_shared_buffer_without_its_inputs_is_refused(name: str, said: str, tmp_path: Path) -> None:
    """There is nothing to write into, or nobody says where."""
    whole = onnx.load_from_string(model({}, ROOM))
    node = whole.graph.node[0]
    node.input[:] = ["" if each == name else each for each in node.input]
    ports = [each for each in whole.graph.input if each.name != name]
    del whole.graph.input[:]
    whole.graph.input.extend(ports)
    with pytest.raises(UnsupportedOperatorError, match=said):
        opbuild.compile(whole, cache_path=tmp_path, input_shapes={"x": (BATCH, 1, WIDE)})
