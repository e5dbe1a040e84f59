"""Networks of factors of any exponent as modules of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from torch.nn import functional

from generated.random_scaled import Scaled


class Scaling(torch.nn.Module):
    """A drawn network; its constants are buffers, in their order."""

    def __init__(self, of: Scaled) -> None:
        super().__init__()
        for name, value in of.constants.items():
            self.register_buffer(name, torch.from_numpy(np.asarray(value)))
        attrs = [{each.name: onnx.helper.get_attribute_value(each) for each in node.attribute} for node in of.nodes]
        names = [[name for name in node.input if name in of.constants] for node in of.nodes]
        self.steps = [(node.op_type, own, given) for node, own, given in zip(of.nodes, names, attrs, strict=True)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the network."""
        for op_type, names, attrs in self.steps:
            x = _step(op_type, x, [getattr(self, name) for name in names], attrs)
        return x


def _step(op_type: str, x: torch.Tensor, own: list[torch.Tensor], attrs: dict[str, Any]) -> torch.Tensor:
    if op_type == "BatchNormalization":
        scale, bias, mean, variance = own
        return functional.batch_norm(x, mean, variance, scale, bias, eps=0.0)
    if op_type == "Gemm":
        return (x @ own[0]) * attrs.get("alpha", 1.0)
    functions = {
        "Mul": torch.mul, "Div": torch.div, "Add": torch.add, "MatMul": torch.matmul, "Conv": functional.conv2d,
        "ConvTranspose": functional.conv_transpose2d,
    }  # fmt: skip
    return functions[op_type](x, own[0])
