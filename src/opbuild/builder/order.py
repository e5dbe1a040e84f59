"""The order of compiling: longest first, so that no worker begins the longest one when the others are done."""

from __future__ import annotations

from opbuild.kernel.opdesc import OpDesc

_MILLISECONDS = {
    "runtime": 850,
    "attention": 180,
    "winograd": 170,
    "conv": 75,
    "depthwise": 75,
    "gemm": 65,
    "matmul": 65,
    "softmax": 60,
    "normalization": 55,
}
"""What compiling one operator of a family takes, roughly; only the order matters."""

_OTHER = 40


def longest_first(desc: OpDesc) -> tuple[int, str]:
    """Return a sort key that puts operators which take longest first, in one order whatever the network."""
    name = f"{desc.family} {desc.variant.get('algorithm', '')}"
    cost = max((cost for word, cost in _MILLISECONDS.items() if word in name), default=_OTHER)
    return -cost, desc.canonical()
