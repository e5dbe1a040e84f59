"""The layers of BERT from the carried kernels: launched one by one, or as one graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import calls
import numpy as np
import references
from calls import Call, Tensor
from cases import CASES
from transformer import Size

Array = np.ndarray[Any, Any]

EPSILON = 1e-12
PROCESSORS = 132
"""Of an H100: with fewer tiles than these some of them idle."""


def shapes_of(size: Size) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of a layer, as it is multiplied from the right."""
    hidden, inner = size.hidden, size.inner
    return {
        "qkv": (hidden, 3 * hidden), "qkv_bias": (3 * hidden,),
        "projection": (hidden, hidden), "projection_bias": (hidden,), "scale_1": (hidden,), "bias_1": (hidden,),
        "up": (hidden, inner), "up_bias": (inner,), "down": (inner, hidden), "down_bias": (hidden,),
        "scale_2": (hidden,), "bias_2": (hidden,),
    }  # fmt: skip


def random_weights(size: Size, seed: int = 0) -> list[dict[str, Array]]:
    """Return float16 weights for each layer, about as large as trained ones."""
    rng = np.random.default_rng(seed)

    def drawn(name: str, shape: tuple[int, ...]) -> Array:
        scale = 0.02 if len(shape) == 1 else 1 / sqrt(shape[0])
        mean = 1 if name.startswith("scale") else 0
        return (mean + scale * rng.standard_normal(shape, np.float32)).astype(np.float16)

    return [{name: drawn(name, shape) for name, shape in shapes_of(size).items()} for _ in range(size.layers)]


def reference(x: Array, weights: Sequence[dict[str, Array]], size: Size) -> Array:
    """Return the layers' output for ``x[batch, length, hidden]`` in float64."""
    x = x.astype(np.float64)
    for layer in weights:
        w = {name: value.astype(np.float64) for name, value in layer.items()}
        qkv = (x @ w["qkv"] + w["qkv_bias"]).reshape(*x.shape[:2], 3, size.heads, -1).transpose(2, 0, 3, 1, 4)
        seen = references.attention(*qkv, 1 / sqrt(qkv.shape[-1]), causal=False).transpose(0, 2, 1, 3).reshape(x.shape)
        seen = seen @ w["projection"] + w["projection_bias"]
        x = references.add_layer_norm(seen, x, w["scale_1"], w["bias_1"], EPSILON)
        inner = references.matmul(x, w["up"], w["up_bias"], "gelu")
        x = references.add_layer_norm(inner @ w["down"] + w["down_bias"], x, w["scale_2"], w["bias_2"], EPSILON)
    return x


def matmul_for(m: int, n: int, activation: str = "none") -> str:
    """Return the binary with the largest tile that gives each processor one, else that with the smallest."""
    fitting = [
        name
        for name, case in CASES.items()
        if case.kernel == "matmul" and case.element == "fp16" and case.constants["ACTIVATION"] == activation
        and "n" in case.aligned and case.constants["BLOCK_M"] in (32, 64, 128)
    ]  # fmt: skip
    tiles = {
        name: [-(-x // CASES[name].constants[key]) for x, key in ((m, "BLOCK_M"), (n, "BLOCK_N"))] for name in fitting
    }
    fitting.sort(key=lambda name: tiles[name][0] * tiles[name][1])
    return next((name for name in fitting if tiles[name][0] * tiles[name][1] >= PROCESSORS), fitting[-1])


class Layers:
    """The layers on a device, for one size of batch.

    Args:
        device: Where they run.
        weights: Of each layer.
        size: How large it is.
        batch: Sequences in a call.
    """

    def __init__(self, device: Any, weights: Sequence[dict[str, Array]], size: Size, batch: int) -> None:
        self._device, self._size, self._batch = device, size, batch
        rows, hidden = batch * size.length, size.hidden
        self.x, self._y, self._seen, self._added = (self._blank(rows, hidden) for _ in range(4))
        self._qkv, self._inner = self._blank(rows, 3 * hidden), self._blank(rows, size.inner)
        self.calls = [call for layer in weights for call in self._layer(self._placed(layer))]
        self.launches: list[Callable[[], None]] = [device.prepare(call) for call in self.calls]

    def _blank(self, *shape: int) -> Tensor:
        tensor = Tensor(0, shape, "fp16")
        return Tensor(self._device.allocate(tensor.size * 2), shape, "fp16")

    def _placed(self, layer: dict[str, Array]) -> dict[str, Tensor]:
        placed = {name: self._blank(*value.shape) for name, value in layer.items()}
        for name, value in layer.items():
            self._device.write(placed[name].pointer, value)
        return placed

    def _layer(self, w: dict[str, Tensor]) -> list[Call]:
        """Return the calls of a layer, which reads ``x`` and leaves its result there."""
        size, (rows, hidden) = self._size, self.x.shape
        width = hidden // size.heads
        shape = (self._batch, size.heads, size.length, width)
        q, k, v = (
            self._qkv.part(part * hidden, shape, (size.length * 3 * hidden, width, 3 * hidden, 1)) for part in range(3)
        )
        seen = self._seen.part(0, shape, (size.length * hidden, width, hidden, 1))

        def matmul(x: Tensor, name: str, out: Tensor, activation: str = "none") -> Call:
            binary = matmul_for(rows, out.shape[1], activation)
            return calls.matmul(binary, x, w[name], w[f"{name}_bias"], out)

        def normal(x: Tensor, other: Tensor, number: int, out: Tensor) -> Call:
            scale, bias = w[f"scale_{number}"], w[f"bias_{number}"]
            return calls.add_layer_norm("add_layer_norm_fp16", x, other, scale, bias, out, EPSILON)

        return [
            matmul(self.x, "qkv", self._qkv),
            calls.attention("attention_fp16", q, k, v, seen, 1 / sqrt(width)),
            matmul(self._seen, "projection", self._added),
            normal(self._added, self.x, 1, self._y),
            matmul(self._y, "up", self._inner, "gelu"),
            matmul(self._inner, "down", self._added),
            normal(self._added, self._y, 2, self.x),
        ]

    def run(self) -> None:
        """Launch all calls one by one."""
        for launch in self.launches:
            launch()

    def graph(self) -> Callable[[], None]:
        """Return a function that launches all calls as one graph."""
        with self._device.capture() as launches:
            self.run()
        return launches[0]

    def feed(self, x: Array) -> None:
        """Write the input."""
        self._device.write(self.x.pointer, x.astype(np.float16))

    def fetch(self) -> Array:
        """Return the output, ``[batch, length, hidden]``."""
        out = np.empty((self._batch, self._size.length, self._size.hidden), np.float16)
        self._device.synchronize()
        self._device.read(self.x.pointer, out)
        return out
