"""Convolution of blocked values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from opbuild.families.blocked import BIAS, BLOCK, LANE, blocks, result
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import Dims, Family, Variant, VariantPart, elements, products_of
from opbuild.families.tiles import (
    SPLIT_TILES,
    Pair,
    Tile,
    Tiles,
    accumulating,
    accumulating_taps,
    computed,
    fitting,
    legal,
    op_type,
    ranked,
)
from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand
from opbuild.operations.expression import Expression, operations
from opbuild.platform.records import replace
from opbuild.target.machine import Machine

TILES: Mapping[int, Tiles] = {
    1: (
        (14, 2, 1.0),
        (13, 2, 1.0),
        (7, 3, 1.02),
        (7, 2, 1.06),
        (8, 2, 1.08),
        (6, 4, 1.08),
        (6, 3, 1.09),
        (6, 2, 1.1),
        (4, 4, 1.12),
        (4, 2, 1.25),
        (7, 1, 1.12),
        (8, 1, 1.12),
        (4, 1, 1.6),
        (2, 2, 1.9),
        (1, 4, 2.4),
        (1, 2, 3.0),
        (2, 1, 2.5),
        (1, 1, 5.0),
    ),
    2: ((3, 2, 0.97), *SPLIT_TILES),
    4: SPLIT_TILES,
}
"""Register tiles by the registers that a channel block fills. From 1 x 1 and 3 x 3 on Sapphire Rapids and Zen 5. Tiles
of one block take 1.25 on Intel's, whose cores do twice as much at once, and 1.0 on Zen 4: where 14 x 2 computes a sixth
or an eighth in vain, they take 0.83 to 0.9 of its time there. 3 x 2 with AVX2 was measured on Zen 4 only."""

JOINING: Mapping[int, float] = {2: 10}
"""By the registers that a channel block fills, products of an output that take as long as finding where a tile is that
may pass over the end of a row. With AVX-512 most rows have a tile that divides them, so they are not joined."""

SHALLOW, NARROW = 32, 8
"""Products of an output up to which a tile has at most so many positions: then bringing sums in and out takes the time
(16 -> 96 channels at 112 x 112: 7 x 3 takes 0.86 of the time of 14 x 2)."""

SLOW = 10
"""Bytes of weights that a core gets from its second-level cache in a cycle without waiting for them, roughly: 1 x 1 in
tiles of 14 x 2 (9 bytes) gains nothing by chunks, in tiles of 7 x 2 (18 bytes) it gains 15%."""

LEAST_PAIRED = 32
"""Outputs from which on products are added up in pairs: each input is converted once for all of them."""

PLAIN, PLAIN_RANK = ("stride", "dilation", "before", "is_padded", "is_depthwise"), 3
"""The attributes of a convolution of plain values beside its kernel, and the dimensions of its weights."""

WAITING = 1.05
"""Time of a tile that waits for its weights, relative to one that takes input channels in chunks."""


@lru_cache(maxsize=16)
def tiles(machine: Machine) -> Tiles:
    """Return the register tiles that a machine may use, with their costs."""
    return fitting(TILES, machine)


def choose(out: Pair, inputs: int, outputs: int, taps: int, pairs: bool, machine: Machine) -> Variant:
    """Return the variant for an output.

    ``width`` and ``blocks`` are the register tile. ``chunked``: whether input channels are taken one block at a time.
    ``joined``, where it is there: that tiles pass over the ends of rows.

    Args:
        out: Extents of the output (x, y).
        inputs: Input channels.
        outputs: Output channels.
        taps: Taps of the kernel.
        pairs: Whether its products are those of bfloat16, added up in pairs: with weights of half the size.
        machine: What runs it.
    """

    def waits(tile: Tile) -> bool:
        return not pairs and _waits(tile, blocks(inputs), taps, machine)

    row, shallow = out[0], inputs * taps <= SHALLOW
    allowed = tuple(tile for tile in tiles(machine) if tile[0] <= NARROW or not shallow)
    costs = tuple((*tile[:2], tile[2] * (WAITING if waits(tile) and row % tile[0] else 1.0)) for tile in allowed)
    count = blocks(outputs)
    tile = _cheapest_tile(costs, row, row, count)
    if not pairs and _may_join(out, machine) and prod(out) * inputs * 4 <= machine.l2:
        other = _cheapest_tile(allowed, row, prod(out), count)
        finding = 1 + JOINING[machine.vectors(BLOCK)] / max(1, inputs * taps)
        if computed(other, prod(out), count) * finding < computed(tile, row, count) * out[1]:
            return {"width": other[0], "blocks": other[1], "chunked": False, "joined": True}
    width, wide, _ = tile
    return {"width": width, "blocks": wide, "chunked": row > 0 and row % width == 0 and waits(tile)}


def candidates(out: Pair, inputs: int, outputs: int, taps: int, pairs: bool, machine: Machine) -> list[Variant]:
    """Return the variants among which tuning searches; the arguments are those of ``choose``."""
    order = ranked(tiles(machine), out[0], blocks(outputs))
    whole = [{"width": width, "blocks": wide, "chunked": False} for width, wide in order]
    in_chunks = [] if pairs else [each for each in whole if out[0] and out[0] % each["width"] == 0]
    joined = [{**each, "joined": True} for each in whole if each["width"] > 1 and not pairs and _may_join(out, machine)]
    found = [*whole, *({**each, "chunked": True} for each in in_chunks), *joined]
    places = {(each["width"], each["blocks"]): place for place, each in enumerate(whole)}
    return sorted(found, key=lambda each: places[each["width"], each["blocks"]])


def _cheapest_tile(costs: Tiles, row: int, positions: int, count: int) -> Tile:
    """Return the cheapest of the tiles that are legal for a row, for so many positions and channel blocks."""
    return min(legal(costs, row, count), key=lambda tile: computed(tile, positions, count))


def _may_join(out: Pair, machine: Machine) -> bool:
    """Return whether rows of an output may be joined."""
    return min(out) > 1 and machine.vectors(BLOCK) in JOINING


def _waits(tile: Tile, inputs: int, taps: int, machine: Machine) -> bool:
    """Return whether a tile's weights would be read from the second-level cache too fast, or for many taps.

    They are if the first-level cache cannot hold them. Two vectors of sums are computed in a cycle, so weights for
    two are read in as many cycles as the tile has positions. With several taps, chunks cost little: sums are seldom
    written (3 x 3 in tiles of 14 x 2: 0.95 of the time).
    """
    weights = BLOCK * BLOCK * 4 * inputs * taps * tile[1]
    return weights > machine.l1 and (taps > 1 or 2 * 4 * machine.lanes > SLOW * tile[0])


def worth_pairs(outputs: int, machine: Machine) -> bool:
    """Return whether products of bfloat16 are added up in pairs for so many output channels."""
    return machine.pairs and outputs >= LEAST_PAIRED


def describe(
    kernel: Pair,
    stride: Pair,
    dilation: Pair,
    epilogue: Epilogue,
    variant: Variant,
    step: int = 1,
    pairs: bool = False,
) -> OpDesc:
    """Return the descriptor of a dense convolution; operands x, w, bias, the epilogue's, out.

    Args:
        kernel: Taps (x, y).
        stride: Input positions between outputs (x, y).
        dilation: Input positions between taps (x, y).
        epilogue: What is applied to the result.
        variant: Of those that ``choose`` returns.
        step: Positions of memory between outputs of a row; above 1 for one phase of a transposed convolution.
        pairs: As in ``choose``.
    """
    kx, ky = kernel
    taps, lanes, dtype = BLOCK * BLOCK, 2 * BLOCK if pairs else BLOCK, "bfloat16" if pairs else "float32"
    places = (Dim(kx, taps), Dim(ky, taps * kx), Dim(stride=taps * kx * ky), Dim())
    weights = (Dim(lanes, 1), Dim(taps // lanes, lanes), *places)
    # Known distances along a row save registers for addresses: 0.96 of the time (Sapphire Rapids, 46 layers).
    along = BLOCK * dilation[0] if kx > 1 else FREE
    read = (LANE, Dim(stride=BLOCK * stride[0]), Dim(), Dim(stride=along), Dim(), Dim())
    x, w = Operand("x", "float32", read, "NC1HWC0"), Operand("w", dtype, weights, "FRACTAL_Z")
    out = result(variant["width"], variant["blocks"], step, divides=variant["chunked"])
    inputs = (x, w, BIAS, *epilogue.inputs(step))
    attrs = {"kernel": kernel, **epilogue.attrs, **({"pairs": True} if pairs else {})}
    return FAMILY.desc((op_type(step), *epilogue.op_types), inputs, (out,), attrs, variant, epilogue.impl_mode)


def describe_plain(
    window: Mapping[str, Any],
    inputs: Sequence[Operand],
    out: Operand,
    epilogue: Expression,
    impl_mode: str,
) -> OpDesc:
    """Return the descriptor of a convolution of plain values, which only devices compute.

    Args:
        window: The attributes ``PLAIN``.
        inputs: ``x``, ``w`` and the epilogue's operands, as ``families.conv.triton`` has them.
        out: The result.
        epilogue: What is applied to it.
        impl_mode: The implementation mode.
    """
    attrs = {**window, "epilogue": epilogue}
    return FAMILY.desc(("Conv", *operations(epilogue)), tuple(inputs), (out,), attrs, {}, impl_mode)


def _products(dims: Sequence[Dims], out: Dims) -> int:
    return elements(out) * dims[1][0][0] if len(dims[1]) == PLAIN_RANK else products_of(1, 5)(dims, out)


def _work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    if "stride" in desc.attrs:
        return accumulating(desc, shapes, machine, shapes[1][0][0])
    return accumulating_taps(1, 5, overlaps=True)(desc, shapes, machine)  # of pairs, as many as there are instructions


def _opened(_desc: OpDesc, operand: Operand, number: int, dim: Dim) -> Dim:
    dim = replace(dim, multiple=1)
    return replace(dim, stride=FREE) if operand.name == "x" and number > 0 else dim


FAMILY = Family(
    "conv",
    choose,
    attributes=("kernel", "epilogue", "pairs", *PLAIN),
    variant={
        "width": VariantPart(least=1),
        "blocks": VariantPart(least=1),
        "chunked": VariantPart(least=False, milliseconds=70),
        "joined": VariantPart(is_extra=True),
    },
    types=("float32",),
    milliseconds=120,
    opened=_opened,
    work=_work,
    candidates=candidates,
    products=_products,
)
