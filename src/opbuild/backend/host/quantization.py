"""Quantisation in numpy, where onnx's reference evaluator is not followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.graph.types import Array, Node

_GREATEST = np.float32(255)


@implements("DynamicQuantizeLinear")
def _dynamic_quantize(node: Node, inputs: Any) -> Sequence[Array]:
    """Quantise to uint8 by the range of the values and 0; the text leaves open the scale of zeros, here 1."""
    x = inputs[0]
    low, high = x.min(initial=0), x.max(initial=0)
    scale = (high - low) / _GREATEST if high > low else np.float32(1)
    zero = np.clip(np.rint(-low / scale), 0, _GREATEST)
    found = np.clip(np.rint(x / scale) + zero, 0, _GREATEST)
    return (found.astype(np.uint8), np.asarray(scale, np.float32), np.asarray(zero, np.uint8))[: len(node.outputs)]
