"""What moves dequantised elements moves the quantised ones instead, a quarter of the bytes.

So tables of embeddings stay bytes, and where what is moved is quantised again as it was, nothing is computed at all.
"""

from __future__ import annotations

import numpy as np

from opbuild.graph.passes.integers.registry import IntegerRewriter, rewrites
from opbuild.graph.types import Node


@rewrites("Gather", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Flatten")
def _moved(to: IntegerRewriter, node: Node) -> bool:
    found = to.quantized(node.inputs[0])
    if found is None or found.axis is not None:
        return False
    moved = to.add(node, node.op_type, (found.value, *node.inputs[1:]), **node.attrs)
    parameters = (found.scale, found.zero_point) if found.zero_point else (found.scale,)
    to.add(node, "DequantizeLinear", (moved, *parameters), node.outputs[0])
    return True


@rewrites("QuantizeLinear")
def _again(to: IntegerRewriter, node: Node) -> bool:
    """Take what was dequantised by the same scale and zero point as it was: rounding gives it back."""
    found = to.quantized(node.inputs[0])
    scale, zero = (*node.inputs, "")[1:3]
    if found is None or found.axis is not None or to.types[found.value] != to.types[node.outputs[0]]:
        return False
    if not _equal(to, scale, found.scale) or not _equal(to, zero, found.zero_point):
        return False
    if scale not in to.constants or not _is_exact(to.constants[scale]):
        return False
    to.add(node, "Identity", (found.value,), node.outputs[0])
    return True


def _equal(to: IntegerRewriter, one: str, other: str) -> bool:
    """Return whether two parameters are one value."""
    if one == other or (to.is_zero(one) and to.is_zero(other)):
        return True
    return one in to.constants and other in to.constants and np.array_equal(to.constants[one], to.constants[other])


def _is_exact(scale: np.ndarray) -> bool:
    """Return whether bytes times the scale, divided by it, are the bytes: it is no denormal, zero, infinity or NaN."""
    return bool(1e-30 < abs(float(scale.reshape(-1)[0])) < 1e30)
