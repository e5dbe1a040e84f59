"""Winograd's convolution: 3 x 3 taps, stride 1."""

from __future__ import annotations

from opbuild.families.blocked import BIAS, BLOCK, IMAGE, LANE, blocks
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import THREADS, Family, Part, Variant
from opbuild.families.tiles import Pair, round_up
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import Dim, OpDesc, Operand

KERNEL = (3, 3)

CACHED_WEIGHTS = 1280 * 1024
"""Bytes of weights that stay in the second-level cache of a core while tiles pass over them."""

CHUNKS = (14, 12, 10, 8, 7)
"""Tiles of a chunk across, where a row has more than eight."""

PRECISE_CHANNELS = 128
"""Input channels up to which F(2x2) has at most twice the direct convolution's error (1.5 times at 64, 3.3 at 512).

F(4x4) has 9 to 19 times that error."""


def choose(out: Pair, inputs: int, outputs: int, precise: bool, machine: Machine) -> Variant | None:
    """Return the variant for an output, or None where the direct convolution is faster.

    ``tile`` is m, the outputs of a tile in each direction; ``chunk_x`` and ``chunk_y`` the tiles of a chunk;
    ``width``, ``height`` and ``blocks`` the register tile, in tiles and channel blocks; ``parts`` the number of tasks:
    ranges of rows of chunks, or of channel blocks, as the kernel decides.

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
    elif min(out) >= 9 and outputs >= 128:
        # F(4x4) has more than twice the weights of F(2x2), and with few tiles reading them is what takes the time.
        m = 2
    else:
        return None
    across, down, count = -(-out[0] // m), -(-out[1] // m), blocks(outputs)
    weights = (m + 2) ** 2 * inputs * outputs * 4
    if max(across, down) <= 8 and count >= max(4, 2 * THREADS):
        # Weights that a core's cache keeps may be read for each row of tiles; others should be read once.
        kept = m == 4 and weights <= THREADS * CACHED_WEIGHTS
        wide = 4 if kept and count >= 4 * THREADS else 2
        return _variant(m, across, 1 if kept else down, wide, THREADS)
    chunk = across if across <= 8 else min(CHUNKS, key=lambda c: (round_up(across, c), -c))
    if chunk == 14 and weights <= CACHED_WEIGHTS:
        chunk = 7  # nearly as fast where weights are few, and one kernel serves more sizes
    return _row_chunk(m, chunk, outputs, machine)


def others(variant: Variant, out: Pair, outputs: int, machine: Machine) -> list[Variant]:
    """Return variants for the output that ``variant`` serves best, of its kind, the one that wastes least first."""
    m = variant["tile"]
    across = -(-out[0] // m)
    chunks = sorted((*CHUNKS, *range(1, 7)), key=lambda c: (round_up(across, c), -c))
    return [_row_chunk(m, chunk, outputs, machine) for chunk in chunks]


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


def _row_chunk(m: int, chunk: int, outputs: int, machine: Machine) -> Variant:
    """Return the variant whose chunk is ``chunk`` tiles of a row."""
    return _variant(m, chunk, 1, min(4 if chunk == 7 else 2, blocks(outputs)), THREADS)


def _variant(m: int, across: int, down: int, wide: int, parts: int) -> Variant:
    register = {"width": across, "height": 1, "blocks": wide}
    return {"tile": m, "chunk_x": across, "chunk_y": down, **register, "parts": parts}


FAMILY = Family(
    "winograd",
    choose,
    attributes=("epilogue",),
    variant={name: Part() for name in ("tile", "chunk_x", "chunk_y", "width", "height", "blocks", "parts")},
    types=("float32",),
    implied={"kernel": list(KERNEL)},
    milliseconds=290,
)
