"""The gradient of a depthwise convolution's weights."""

from __future__ import annotations

from math import prod

from opbuild.families.blocked import BLOCK
from opbuild.families.conv_weight_gradient.family import DY, X, sums, work
from opbuild.families.family import Family, Variant, VariantPart, first_of, products_of_images
from opbuild.families.tiles import Pair
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine


def candidates(out: Pair, images: int, kernel: Pair, machine: Machine) -> list[Variant]:
    """Return the variants among which tuning searches, the first of which is chosen.

    ``across`` and ``down`` are the register tile: taps whose sums are in registers. ``held``: whether the sums of an
    image (1) or of a row (2) are added up in memory.

    Args:
        out: Positions of the output (x, y).
        images: Images of the batch.
        kernel: Taps (x, y).
        machine: What runs it.
    """
    across, down = kernel
    tiles = [tile for tile in dict.fromkeys((kernel, (across, 1), (1, down), (1, 1))) if _fits(tile, machine)]
    return [{"across": x, "down": y, "held": held} for held in sums(out, images) for x, y in tiles]


choose = first_of(candidates)


def _fits(tile: Pair, machine: Machine) -> bool:
    """Return whether registers hold the sums of a tile, and their factors; one tap always fits."""
    return tile == (1, 1) or (prod(tile) + 1) * machine.vectors(BLOCK) <= machine.registers


def describe(kernel: Pair, variant: Variant) -> OpDesc:
    """Return the descriptor for taps (x, y), of a variant as ``choose`` returned it; operands dy, x, out."""
    taps = prod(kernel)
    out = Operand("out", "float32", (Dim(taps, 1), Dim(stride=taps, multiple=BLOCK)))
    return FAMILY.desc(("ConvWeightGradient",), (DY, X), (out,), {"kernel": kernel}, variant)


FAMILY = Family(
    "conv_weight_gradient_depthwise",
    choose,
    attributes=("kernel",),
    variant={"across": VariantPart(), "down": VariantPart(), "held": VariantPart()},
    types=("float32",),
    milliseconds=80,
    work=work,
    candidates=candidates,
    products=products_of_images,
)
