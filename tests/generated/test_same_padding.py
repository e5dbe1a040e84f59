"""Random networks of windows whose padding is SAME, at images of any size: one lowering serves every parity.

``OPBUILD_FUZZ=2000`` tries so many networks.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from generated.opened import Sizes
from opbuild.frontend.onnx_model import load_model
from opbuild.runtime.binding import Shapes
from support.comparison import onnxruntime_outputs
from support.fuzzing import CAMPAIGN, SEED, check_seeds
from support.tiers import spans

SIZES = 12
RUN = CAMPAIGN // 20 or 4
DECLARED = {"x": (-1, 3, -1, -1)}

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


class WindowMaker:
    """Makes one network of windows over images.

    Args:
        seed: Decides which.
        covers: Whether no window is smaller than its stride, which other runtimes pad otherwise.
    """

    def __init__(self, seed: int, *, covers: bool = False) -> None:
        self.random, self._rng, self._covers = random.Random(seed), np.random.default_rng(seed), covers
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._channels = 3

    def model(self) -> onnx.ModelProto:
        """Return the network."""
        value = "x"
        for _ in range(self.random.randint(1, 3)):
            steps = self._conv, self._conv, self._depthwise, self._pool, self._wide, self._quantized
            value = self.random.choice(steps)(value)
        self._node("Identity", value, output="y")
        shape = ["b", 3, "h", "w"]
        graph = helper.make_graph(
            self._nodes,
            "windows",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            self._constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def _conv(self, x: str) -> str:
        channels, window = self.random.choice((5, 16, 20)), self._window()
        weights = self._weights((channels, self._channels, *window["kernel_shape"]))
        self._channels = channels
        return self._node("Relu", self._node("Conv", x, weights, **window))

    def _depthwise(self, x: str) -> str:
        window = self._window()
        return self._node("Conv", x, self._weights((self._channels, 1, *window["kernel_shape"])),
                          group=self._channels, **window)  # fmt: skip

    def _pool(self, x: str) -> str:
        return self._node(self.random.choice(("MaxPool", "AveragePool")), x, **self._window())

    def _wide(self, x: str) -> str:
        wide = self._node("Cast", x, to=TensorProto.DOUBLE)
        return self._node("Cast", self._node("MaxPool", wide, **self._window()), to=TensorProto.FLOAT)

    def _quantized(self, x: str) -> str:
        scale, zero = self._constant(np.float32(0.05)), self._constant(np.uint8(self.random.randint(0, 255)))
        window, signed = self._window(), self._constant(np.int8(0))
        shape = (8, self._channels, *window["kernel_shape"])
        weights = self._constant(self._rng.integers(-9, 9, shape).astype(np.int8))
        self._channels = 8
        read = self._node("QuantizeLinear", x, scale, zero)
        made = self._node("QLinearConv", read, scale, zero, weights, scale, signed, scale, zero, **window)
        return self._node("DequantizeLinear", made, scale, zero)

    def _window(self) -> dict[str, object]:
        strides = [self.random.randint(1, 4) for _ in range(2)]
        taps = [self.random.randint(stride if self._covers else 1, 5) for stride in strides]
        mode = self.random.choice(("SAME_UPPER", "SAME_LOWER"))
        return {"kernel_shape": taps, "strides": strides, "auto_pad": mode}

    def _weights(self, shape: tuple[int, ...]) -> str:
        return self._constant(self._rng.uniform(-0.3, 0.3, shape).astype(np.float32))

    def _constant(self, value: np.generic | np.ndarray) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _node(self, op_type: str, *inputs: str, output: str = "", **attributes: object) -> str:
        output = output or f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(op_type, inputs, [output], f"n{len(self._nodes)}", **attributes))
        return output


def sizes(seed: int, count: int) -> list[Shapes]:
    """Return random batches, heights and widths."""
    chosen = random.Random(seed)
    return [((chosen.randint(1, 3), 3, chosen.randint(1, 40), chosen.randint(1, 40)),) for _ in range(count)]


@pytest.mark.parametrize("seeds", spans(16, 4))
def test_windows_with_same_padding_are_lowered_once(seeds: range) -> None:
    """Whatever is left of an extent when it is divided by a stride: how much is padded is a number of its own."""

    def one(seed: int) -> tuple[str, str]:
        network = Sizes(load_model(WindowMaker(seed).model().SerializeToString()), DECLARED)
        count = len(network.records(sizes(seed, SIZES)))
        return ("right", "") if count == 1 else ("wrong", f"lowered {count} times")

    check_seeds("SAME padding", one, seeds, processes=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + RUN))
def test_windows_with_same_padding_give_what_onnx_runtime_gives(seed: int, shared_store: Path) -> None:
    """At each size, with the kernels for the padding that it has."""
    model = WindowMaker(seed, covers=True).model()
    network = opbuild.compile(onnx.ModelProto.FromString(model.SerializeToString()), cache_path=shared_store, workers=2)
    values = np.random.default_rng(seed)
    for ((*shape,),) in sizes(seed, 6):
        x = values.uniform(-1, 1, shape).astype(np.float32)
        (wanted,) = onnxruntime_outputs(model, {"x": x}, optimized=False)
        np.testing.assert_allclose(network(x), wanted, rtol=1e-4, atol=1e-4 + 0.051 * ("QLinearConv" in str(model)))
