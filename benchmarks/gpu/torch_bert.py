"""The same layers by torch, for comparison: eager, or compiled by ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from bert import EPSILON, Array
from torch.nn import functional
from transformer import Size

MODES = {"eager": None, "compiled": "default", "reduce-overhead": "reduce-overhead"}
"""Ways to run, and the mode of ``torch.compile``."""


class Layers(torch.nn.Module):
    """Layers of BERT with given weights."""

    def __init__(self, weights: Sequence[dict[str, Array]], size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.weights = [
            {name: torch.from_numpy(value).cuda().T.contiguous() for name, value in layer.items()} for layer in weights
        ]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output for ``x[batch, length, hidden]``."""
        for w in self.weights:
            qkv = functional.linear(x, w["qkv"], w["qkv_bias"]).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(*qkv).transpose(1, 2).flatten(2)
            x = self._normal(functional.linear(seen, w["projection"], w["projection_bias"]) + x, w, 1)
            inner = functional.gelu(functional.linear(x, w["up"], w["up_bias"]))
            x = self._normal(functional.linear(inner, w["down"], w["down_bias"]) + x, w, 2)
        return x

    @staticmethod
    def _normal(x: torch.Tensor, w: dict[str, torch.Tensor], number: int) -> torch.Tensor:
        return functional.layer_norm(x, x.shape[-1:], w[f"scale_{number}"], w[f"bias_{number}"], EPSILON)


def runner(way: str, weights: Sequence[dict[str, Array]], size: Size, x: Array) -> Callable[[], Any]:
    """Return a function that runs the layers once on an input and waits for the result."""
    layers: Any = Layers(weights, size).eval()
    if MODES[way]:
        layers = torch.compile(layers, mode=MODES[way])
    fed = torch.from_numpy(x).cuda()

    def run() -> torch.Tensor:
        with torch.inference_mode():
            out: torch.Tensor = layers(fed)
        torch.cuda.synchronize()
        return out

    return run
