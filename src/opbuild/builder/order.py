"""The order of compiling: longest first, so that no worker begins the longest one when the others are done."""

from __future__ import annotations

from opbuild.kernel.opdesc import OpDesc

_MILLISECONDS = {
    "winograd": 290,
    "conv_depthwise": 160,
    "conv_first": 120,
    "conv": 120,
    "conv_grouped": 105,
    "softmax": 105,
    "layer_norm": 105,
    "matmul": 105,
    "gemv": 90,
    "elementwise": 70,
    "lrn": 65,
    "global_pool": 65,
}
"""What compiling one operator of a family takes on one core, roughly; only the order matters."""

_CHUNKED = 70
"""What a convolution takes more if it adds up chunks of input channels."""

_OTHER = 55


def longest_first(desc: OpDesc) -> tuple[int, str]:
    """Return a sort key that puts operators which take longest first, in one order whatever the network."""
    cost = _MILLISECONDS.get(desc.family, _OTHER) + (_CHUNKED if desc.variant.get("chunk") else 0)
    return -cost, desc.canonical()
