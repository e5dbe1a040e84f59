"""Random DecoderMaskedMultiHeadAttention nodes give what ONNX Runtime gives.

``OPBUILD_FUZZ=5000`` tries so many.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper

import opbuild
from opbuild.errors import OpbuildError
from support.comparison import onnxruntime_outputs
from support.fuzzing import CAMPAIGN, check_seeds
from support.tiers import spans

Array = npt.NDArray[Any]

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


def random_node(seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return the node of a seed as a model, and its inputs: of itself, with beams or not, or of another network."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)

    def floats(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    batches, beams, heads, size = draw.randint(1, 3), draw.choice((1, 1, 2, 3)), draw.randint(1, 3), draw.randint(1, 9)
    batch, hidden, room = batches * beams, heads * size, draw.randint(1, 12)
    past, total = draw.randrange(room), room
    is_cross = draw.random() < 0.3
    attrs: dict[str, Any] = {"num_heads": heads}
    inputs: list[Array | None] = [floats(batch, 1, hidden)]
    if is_cross:
        inputs += [floats(batch, heads, room, size), floats(batch, heads, room, size), *[None] * 8]
    else:
        attrs["past_present_share_buffer"], total = 1, past + 1
        inputs += [floats(batch, 1, hidden), floats(batch, 1, hidden), None, None]
        inputs += [floats(batch, heads, room, size) for _ in range(2)]
        inputs += [np.array([past], np.int32), *[None] * 3]
        if draw.random() < 0.3 and beams == 1:
            inputs[4] = floats(batch, heads, 1, total)
    if draw.random() < 0.4 and (is_cross or beams == 1):
        inputs[3] = (rng.random((batch, total)) < 0.7).astype(np.int32)
    if draw.random() < 0.4:
        inputs[10] = floats(3 * hidden)
    if beams > 1 and not is_cross:
        inputs[8], inputs[9] = np.array([beams], np.int32), rng.integers(0, beams, (batches, beams, room), np.int32)
    if draw.random() < 0.3:
        attrs["scale"] = draw.choice((0.1, 0.7))
    if draw.random() < 0.3:
        attrs["mask_filter_value"] = -50.0
    names = [f"i{index}" if value is not None else "" for index, value in enumerate(inputs)]
    outputs = ["y"] if is_cross else ["y", "keys", "values"]
    node = helper.make_node("DecoderMaskedMultiHeadAttention", names, outputs, "a", domain="com.microsoft", **attrs)
    feeds = {name: value for name, value in zip(names, inputs, strict=True) if value is not None}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
    ]
    results = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "decoding", infos, results)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), feeds


def compared(seed: int) -> tuple[str, str]:
    """Return the outcome of the node of a seed."""
    model, feeds = random_node(seed)
    wanted = onnxruntime_outputs(model, feeds)
    try:
        got = opbuild.compile(model).run(None, feeds)
    except OpbuildError as error:
        return "foreign", f"{type(error).__name__}: {error}"
    for name, one, other in zip(["y", "keys", "values"], got, wanted, strict=False):
        if one.shape != other.shape or not np.allclose(one, other, rtol=1e-5, atol=1e-5):
            return "wrong", f"{name} is {np.abs(one - other).max():.1e} off: {model.graph.node[0]}"
    return "right", ""


@pytest.mark.slow
@pytest.mark.parametrize("seeds", spans(15, 4))
def test_attention_of_one_token_gives_what_onnx_runtime_gives(seeds: range) -> None:
    """Of itself in a buffer with any place, mask, bias and beams, or of another network's keys."""
    check_seeds("attention of one token", compared, seeds)
