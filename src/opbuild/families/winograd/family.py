"""Winograd's convolution: 3 x 3 taps, stride 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod

from opbuild.families.blocked import BIAS, BLOCK, IMAGE, LANE, blocks
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import BYTES, Dims, Family, Variant, VariantPart, elements
from opbuild.families.tiles import Pair, Tiles, cheapest, fitting, ranked, round_up
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.platform.records import replace
from opbuild.target.machine import Machine

KERNEL = (3, 3)

SMALL = 8
"""Tiles across and down of an image that is one chunk, at most."""

CACHED = 1.25
"""Weights that stay in the second-level cache of a core while tiles pass over them, relative to its size."""

CHUNKS = (14, 12, 10, 8, 7)
"""Tiles of a chunk across, where an image has more."""

TILES: Mapping[int, Tiles] = {
    1: (
        (14, 2, 1.0), (5, 4, 1.0), (6, 4, 1.0), (10, 2, 1.05), (4, 4, 1.05), (7, 2, 1.07), (8, 2, 1.07), (6, 2, 1.1),
        (4, 2, 1.15), (14, 1, 1.35), (7, 1, 1.4), (4, 1, 1.5), (2, 1, 2.0), (1, 1, 4.0),
    ),
    2: ((3, 2, 0.88), (2, 2, 1.0), (6, 1, 1.02), (5, 1, 1.05), (4, 1, 1.1), (3, 1, 1.25), (2, 1, 1.4), (1, 1, 4.0)),
    4: ((6, 1, 1.0), (5, 1, 1.02), (4, 1, 1.05), (3, 1, 1.15), (2, 1, 1.4), (1, 1, 2.0)),
}  # fmt: skip
"""Register tiles by the registers that a channel block fills: tiles of the image, channel blocks, and time for each
product relative to the best. Measured on Sapphire Rapids with AVX-512 and AVX2; 3 x 2 on Zen 4."""

SEARCHED = 3
"""Chunks, and register tiles of each, that tuning tries."""

PER_NANOSECOND = 6
"""Vectors that one core multiplies and adds in a nanosecond: two a cycle at 3 GHz."""

PRECISE_CHANNELS = 128
"""Input channels up to which F(2x2) has at most twice the direct convolution's error (1.5 times at 64, 3.3 at 512).

F(4x4) has 9 to 19 times that error."""


def choose(out: Pair, inputs: int, outputs: int, precise: bool, machine: Machine) -> Variant | None:
    """Return the variant for an output, or None where the direct convolution is faster.

    ``tile`` is m, the outputs of a tile in each direction; ``chunk_x`` and ``chunk_y`` the tiles of a chunk;
    ``width`` and ``blocks`` the register tile, in tiles of the image and in channel blocks.

    Args:
        out: Extents of the output (x, y).
        inputs: Input channels.
        outputs: Output channels.
        precise: Whether only algorithms are wanted whose error is about that of the direct convolution.
        machine: What runs it.
    """
    if precise and inputs > PRECISE_CHANNELS:
        return None
    if min(out) >= 16 or (min(out) >= 12 and outputs < 128):
        m = 2 if precise else 4
    elif min(out) >= 7 and outputs >= 128:
        # F(4x4) has more than twice the weights of F(2x2), and with few tiles reading them is what takes the time. So
        # it is below 7 with those of F(2x2), 1.8 times the direct convolution's.
        m = 2
    else:
        return None
    across, down = (-(-extent // m) for extent in out)
    weights = (m + 2) ** 2 * inputs * outputs * 4
    if max(across, down) > SMALL:
        across, down = min(CHUNKS, key=lambda chunk: (round_up(across, chunk), -chunk)), 1
        if across == 14 and weights <= CACHED * machine.l2:
            across = 7  # nearly as fast where weights are few, and one kernel serves more sizes
    elif m == 4 and weights <= 2 * CACHED * machine.l2:
        down = 1  # weights that caches keep may be read for each row of tiles; others should be read once
    return _variant(m, (across, down), outputs, machine)


def candidates(out: Pair, inputs: int, outputs: int, precise: bool, machine: Machine) -> list[Variant | None]:
    """Return the variants among which tuning searches, and None, the direct convolution; arguments as of ``choose``."""
    if precise and inputs > PRECISE_CHANNELS:
        return [None]
    found: list[Variant | None] = [choose(out, inputs, outputs, precise, machine), None]
    for m in (2,) if precise else (4, 2):
        across, down = (-(-extent // m) for extent in out)
        rows = [(across, down), (across, 1)] if max(across, down) <= SMALL else []
        chunks = sorted(CHUNKS, key=lambda chunk: (round_up(across, chunk), -chunk))[:SEARCHED]
        for chunk in rows or [(chunk, 1) for chunk in chunks]:
            legal = ranked(tiles(machine), chunk[0] * chunk[1], blocks(outputs))[:SEARCHED]
            found += [_variant_of(m, chunk, tile) for tile in legal]
    return [each for place, each in enumerate(found) if each not in found[:place]]


@lru_cache(maxsize=16)
def tiles(machine: Machine) -> Tiles:
    """Return the register tiles that a machine may use, with their costs."""
    return fitting(TILES, machine)


def rounded(variant: Variant, out: Pair) -> Pair:
    """Return the output's extents rounded up to whole chunks."""
    m = variant["tile"]
    return round_up(out[0], m * variant["chunk_x"]), round_up(out[1], m * variant["chunk_y"])


def describe(epilogue: Epilogue, variant: Variant) -> OpDesc:
    """Return the descriptor; operands x, u, bias, the epilogue's, out."""
    m = variant["tile"]
    weights = (LANE, Dim(stride=BLOCK, multiple=BLOCK), Dim(), Dim((m + 2) ** 2))
    out = (
        LANE,
        Dim(stride=BLOCK, multiple=m * variant["chunk_x"]),
        Dim(multiple=m * variant["chunk_y"]),
        Dim(min=variant["blocks"]),
    )
    inputs = (IMAGE, Operand("u", "float32", weights, "FRACTAL_Z"), BIAS, *epilogue.inputs())
    outputs = (Operand("out", "float32", out, "NC1HWC0"),)
    return FAMILY.desc(("Conv", *epilogue.op_types), inputs, outputs, epilogue.attrs, variant, epilogue.impl_mode)


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds that a call takes on one core: products, and transforms that pass through its cache."""
    m: int = desc.variant["tile"]
    points, outputs, inputs = (m + 2) ** 2, shapes[1][2][0] * BLOCK, shapes[1][1][0]
    count = prod(-(-(shapes[0][axis][0] - 2) // m) for axis in (1, 2))
    products = count * inputs * outputs / (machine.lanes * PER_NANOSECOND)
    elements = 2 * count * (inputs + outputs) + inputs * outputs
    return points * (products + elements * 4 / BYTES)


def _variant(m: int, chunk: Pair, outputs: int, machine: Machine) -> Variant:
    return _variant_of(m, chunk, cheapest(tiles(machine), chunk[0] * chunk[1], blocks(outputs)))


def _variant_of(m: int, chunk: Pair, tile: Pair) -> Variant:
    return {"tile": m, "chunk_x": chunk[0], "chunk_y": chunk[1], "width": tile[0], "blocks": tile[1]}


def _opened(desc: OpDesc, operand: Operand, number: int, dim: Dim) -> Dim:
    return replace(dim, multiple=desc.variant["tile"]) if operand.name == "out" and number in (1, 2) else dim


FAMILY = Family(
    "winograd",
    choose,
    attributes=("epilogue",),
    variant={"tile": VariantPart()}
    | {name: VariantPart(least=1) for name in ("chunk_x", "chunk_y", "width", "blocks")},
    types=("float32",),
    implied={"kernel": list(KERNEL)},
    milliseconds=290,
    least_extent=1,
    opened=_opened,
    work=work,
    candidates=candidates,
    products=lambda dims, out: elements(out) * 9 * dims[1][1][0],
)
