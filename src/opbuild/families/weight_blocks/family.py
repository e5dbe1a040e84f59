"""Weights of convolutions into blocks."""

from __future__ import annotations

from opbuild.families.blocked import BLOCK, LANE
from opbuild.families.family import Family, moving
from opbuild.kernel.opdesc import Dim, OpDesc, Operand

LEAST_POSITIONS = 64
"""Positions of all images from which on transforming weights in each call is worth it: 0.7 to 0.85 of the time of the
direct convolution for 128 to 512 channels; with 49 positions of 512 channels it is 1.26 (Zen 4)."""


def describe(taps: int, turned: bool, tile: int = 0, blocked: bool = False) -> OpDesc:
    """Return the descriptor; operands w and out.

    Args:
        taps: Taps of the kernel; those of weights in blocks are counted by their views.
        turned: Whether the blocks are those of a transposed convolution.
        tile: Winograd's tile, m, for which they are transformed; 0 for none.
        blocked: Whether the weights lie in blocks already.
    """
    area, known = BLOCK * BLOCK, {"blocked": True} if blocked else {"taps": taps}
    attrs = {**known, "turned": turned, **({"tile": tile} if tile else {})}
    in_blocks: tuple[Dim, ...] = (LANE, Dim(BLOCK, BLOCK), Dim(), Dim(), Dim(), Dim())
    if blocked:
        w, dims = Operand("w", "float32", in_blocks, "FRACTAL_Z"), in_blocks
    else:
        w = Operand("w", "float32", (Dim(stride=1, multiple=BLOCK * taps), Dim(multiple=BLOCK)))
        dims = (LANE, Dim(BLOCK, BLOCK), Dim(taps, area), Dim(stride=area * taps), Dim())
    if tile:
        dims = (LANE, Dim(stride=BLOCK, multiple=BLOCK), Dim(), Dim((tile + 2) ** 2))
    return FAMILY.desc(("WeightBlocks",), (w,), (Operand("out", "float32", dims, "FRACTAL_Z"),), attrs, {})


FAMILY = Family(
    "weight_blocks",
    choose=dict,
    attributes=("taps", "turned", "tile", "blocked"),
    types=("float32",),
    milliseconds=60,
    work=moving(2),  # elements pass through the first-level cache once more
)
