"""Winograd's convolution of 8-bit numbers: 3 x 3 taps, stride 1, where a level adds up two products at once.

It takes 16 products for four outputs instead of 36, of 16 bits instead of 8. Where an instruction adds up four products
of bytes, that is no gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.families.blocked import BLOCK, BLOCKED_DIMS, CHANNEL_DIMS, LANE, blocks
from opbuild.families.conv_integer.family import MOST_PRODUCTS
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import BYTES, Dims, Family, Variant, elements, first_of
from opbuild.families.tiles import Pair, Tiles, fitting, ranked, round_up
from opbuild.families.winograd import family as winograd
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine

M = 2
"""Outputs of a tile in each direction. F(4 x 4) would need weights of more than 16 bits."""

N = M + 2
"""Inputs of a tile in each direction."""

POINTS = N * N
"""Products of a tile."""

MOST_INPUTS = MOST_PRODUCTS // (4 * 9)
"""Input channels up to which four times a sum cannot leave int32, whatever the numbers."""

LEAST_CHANNELS = 32
"""Input and output channels from which on fewer products are worth the transforms."""

LEAST_EXTENT = 4
"""Positions of a row or of a column from which on tiles are worth it."""

SEARCHED = 3
"""Chunks, and register tiles of each, that tuning tries."""


def tiles(machine: Machine) -> Tiles:
    """Return the register tiles that a machine may use: those of ``winograd`` that leave a product a register.

    With AVX2 3 x 2, the first there, is none: two sums and four inputs left registers at each step, and 2 x 2 takes
    0.65 to 0.7 of its time (Zen 5, ResNet-50's layers).
    """
    return fitting(winograd.TILES, machine, is_either=False)


def candidates(out: Pair, inputs: int, outputs: int, machine: Machine) -> list[Variant | None]:
    """Return the variants among which tuning searches, the chosen one first; None is the direct convolution.

    Parts are those of ``winograd``.

    Args:
        out: Extents of the output (x, y).
        inputs: Input channels.
        outputs: Output channels.
        machine: What runs it.
    """
    if machine.dot > 2 or inputs > MOST_INPUTS:
        return [None]
    across, down = (-(-extent // M) for extent in out)
    ordered = sorted(winograd.CHUNKS, key=lambda chunk: (round_up(across, chunk), -chunk))
    chunks = [(across, down)] if 0 < max(across, down) <= winograd.SMALL else [(each, 1) for each in ordered[:SEARCHED]]
    found: list[Variant | None] = [
        {"tile": M, "chunk_x": chunk[0], "chunk_y": chunk[1], "width": tile[0], "blocks": tile[1]}
        for chunk in chunks
        for tile in ranked(tiles(machine), prod(chunk), blocks(outputs))[:SEARCHED]
    ]
    worth = min(inputs, outputs) >= LEAST_CHANNELS and min(out) >= LEAST_EXTENT
    return [*found, None] if worth else [None, *found]


choose = first_of(candidates)


def describe(epilogue: Epilogue, out: str, variant: Variant) -> OpDesc:
    """Return the descriptor; operands x, u, bias, the epilogue's, out of element type ``out``."""
    step = BLOCK * BLOCK
    weights = (Dim(2, 1), Dim(BLOCK, 2), Dim(BLOCK // 2, 2 * BLOCK), Dim(stride=step), Dim(), Dim(POINTS))
    place = (
        LANE,
        Dim(stride=BLOCK, multiple=M * variant["chunk_x"]),
        Dim(multiple=M * variant["chunk_y"]),
        Dim(min=variant["blocks"]),
    )
    inputs = (
        Operand("x", "uint8", BLOCKED_DIMS, "NC1HWC0"),
        Operand("u", "int16", weights, "FRACTAL_Z"),
        Operand("bias", "int32", CHANNEL_DIMS, "NC1HWC0"),
        *epilogue.inputs(),
    )
    target = (Operand("out", out, place, "NC1HWC0"),)
    return FAMILY.desc(("ConvInteger", *epilogue.op_types), inputs, target, epilogue.attrs, variant, epilogue.impl_mode)


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds that a call takes on one core: products, and transforms that pass through its cache."""
    inputs, outputs = (shapes[1][axis][0] * BLOCK for axis in (3, 4))
    count = prod(-(-(shapes[0][axis][0] - 2) // M) for axis in (1, 2))
    products = count * inputs * outputs / (2 * machine.lanes * winograd.PER_NANOSECOND)
    return POINTS * (products + (count * (2 * inputs + 4 * outputs) + 2 * inputs * outputs) / BYTES)


FAMILY = Family(
    "winograd_integer",
    choose,
    attributes=("epilogue",),
    variant=winograd.FAMILY.variant,
    types=("uint8",),
    implied={"kernel": list(winograd.KERNEL)},
    milliseconds=290,
    least_extent=1,
    opened=winograd.FAMILY.opened,
    work=work,
    candidates=candidates,
    products=lambda dims, out: elements(out) * 9 * 16 * dims[1][3][0],
)
