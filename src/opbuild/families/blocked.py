"""Channel blocks: the operands that the families of images share."""

from __future__ import annotations

from opbuild.kernel.opdesc import Dim, Operand

BLOCKED = "blocked"
"""The layout, as devices name those that they take beside plain ones (``target.devices``)."""

BLOCK = 16
"""Channels in a block: one AVX-512 vector of float32; two vectors with AVX2, four with NEON."""

LANE = Dim(BLOCK, 1)

BLOCKED_DIMS = (LANE, Dim(stride=BLOCK), Dim(), Dim())
"""Dimensions of one image of a blocked value: lane, x, y, block."""

CHANNEL_DIMS = (LANE, Dim(stride=BLOCK))
"""Dimensions of one value for each channel: lane, block."""

IMAGE = Operand("x", "float32", BLOCKED_DIMS, "NC1HWC0")
BIAS = Operand("bias", "float32", CHANNEL_DIMS, "NC1HWC0")


def blocks(channels: int) -> int:
    """Return the number of channel blocks that hold ``channels``."""
    return -(-channels // BLOCK)


def result(width: int, blocks: int, step: int = 1, divides: bool = False, dtype: str = "float32") -> Operand:
    """Return a blocked output whose tile has these extents; its tails are shifted inwards, so no extent may be below.

    ``step`` is the distance between the positions of a row. Where the width ``divides`` the row, there is no tail.
    """
    dims = (
        LANE,
        Dim(stride=BLOCK * step, min=width if width > 1 else 0, multiple=width if divides else 1),
        Dim(),
        Dim(min=blocks if blocks > 1 else 0),
    )
    return Operand("out", dtype, dims, "NC1HWC0")
