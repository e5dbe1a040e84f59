"""The gradient of a convolution's weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from opbuild.families.blocked import BLOCK, LANE, blocks
from opbuild.families.family import Dims, Family, Variant, VariantPart, first_of, moved_bytes, products_of_images
from opbuild.families.layouts import FEW_INPUTS, inputs_at_once
from opbuild.families.tiles import RATE, Pair
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.platform.records import replace
from opbuild.target.machine import Machine

REGISTER_TILES: Mapping[int, tuple[Pair, ...]] = {
    1: ((1, 16), (4, 4), (2, 8), (3, 4), (2, 4), (1, 8), (1, 4), (1, 2)),
    2: ((1, 4), (2, 2), (1, 2)),
    4: ((1, 4), (2, 2), (1, 2)),
}
"""Register tiles by the registers that a channel block fills: blocks of output channels, and input channels. The first
that is legal is taken."""

DY = Operand("dy", "float32", (LANE, Dim(stride=BLOCK), Dim(), Dim(), Dim()), "NC1HWC0")
X = Operand("x", "float32", (LANE, *[Dim()] * 6), "NC1HWC0")

LEAST, MOST = 64, 1024
"""Positions of a partial sum. Fewer, and adding it up in memory takes the time; more, and roundings grow (4,096 in one
sum: 5 times the error of four sums), and what a tile reads leaves the near caches."""


def candidates(out: Pair, images: int, inputs: int, outputs: int, machine: Machine) -> list[Variant]:
    """Return the variants among which tuning searches, the first of which is chosen.

    ``outputs`` and ``inputs`` are the register tile: blocks of output channels, and input channels. ``held``: whether
    the sums of an image (1) or of a row (2) are added up in memory.

    Args:
        out: Positions of the output (x, y).
        images: Images of the batch.
        inputs: Input channels.
        outputs: Output channels.
        machine: What runs it.
    """
    tiles = [tile for tile in REGISTER_TILES[machine.vectors(BLOCK)] if _fits(tile, inputs, outputs, machine)]
    return [{"outputs": wide, "inputs": count, "held": held} for held in sums(out, images) for wide, count in tiles]


choose = first_of(candidates)


def _fits(tile: Pair, inputs: int, outputs: int, machine: Machine) -> bool:
    """Return whether a tile is legal, and registers hold its sums, a vector of outputs and one input."""
    wide, count = tile
    most = FEW_INPUTS if is_few(inputs) else BLOCK
    each = machine.vectors(BLOCK)
    return count <= most and blocks(outputs) % wide == 0 and (count + 1) * wide * each + 1 <= machine.registers


def sums(out: Pair, images: int) -> list[int]:
    """Return the sums that may be added up in memory, the best first."""
    lengths = (prod(out) * images, prod(out), out[0])
    worth = [held for held, length in enumerate(lengths) if length >= LEAST or held == 0]
    best = next((held for held in worth if lengths[held] <= MOST), worth[-1])
    return [best, *(held for held in worth if held != best)]


def is_few(inputs: int) -> bool:
    """Return whether input channels are so few that no whole block of them is computed."""
    return inputs <= FEW_INPUTS


def rounded(inputs: int, outputs: int) -> tuple[int, int]:
    """Return the input and output channels that are written: whole blocks."""
    return FEW_INPUTS if is_few(inputs) else blocks(inputs) * BLOCK, blocks(outputs) * BLOCK


def describe(kernel: Pair, inputs: int, variant: Variant, blocked: bool = False) -> OpDesc:
    """Return the descriptor; operands dy, x, out.

    Args:
        kernel: Taps (x, y).
        inputs: Input channels.
        variant: As ``choose`` returned it.
        blocked: Whether whole blocks are written as convolutions read weights.
    """
    attrs: dict[str, Any] = {"kernel": kernel, "few": True} if is_few(inputs) else {"kernel": kernel}
    run, (kx, ky), area = prod(kernel) * inputs_at_once(attrs), kernel, BLOCK * BLOCK
    out = Operand("out", "float32", (Dim(stride=1, multiple=run), Dim(multiple=BLOCK * variant["outputs"])))
    if blocked:
        places = (Dim(kx, area), Dim(ky, area * kx), Dim(stride=area * kx * ky), Dim(multiple=variant["outputs"]))
        out, attrs = (
            Operand("out", "float32", (LANE, Dim(BLOCK, BLOCK), *places), "FRACTAL_Z"),
            {**attrs, "blocked": True},
        )
    return FAMILY.desc(("ConvWeightGradient",), (DY, X), (out,), attrs, variant)


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds that a gradient takes on one core."""
    dy, x, out = shapes
    positions = prod(extent for extent, _ in (*dy[1:3], dy[4]))
    arithmetic = positions * prod(extent for extent, _ in out) / (RATE * machine.lanes)
    return max(arithmetic, moved_bytes(desc, [dy, (*x[:3], *x[5:]), out], machine))


def _opened(desc: OpDesc, operand: Operand, number: int, dim: Dim) -> Dim:
    if operand.name != "out" or number != len(operand.dims) - 1:
        return dim
    return replace(dim, multiple=1 if desc.attrs.get("blocked") else BLOCK)


FAMILY = Family(
    "conv_weight_gradient",
    choose,
    attributes=("kernel", "few", "blocked"),
    variant={"outputs": VariantPart(least=1), "inputs": VariantPart(), "held": VariantPart()},
    types=("float32",),
    milliseconds=120,
    opened=_opened,
    work=work,
    candidates=candidates,
    products=products_of_images,
)
