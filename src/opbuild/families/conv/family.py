"""Convolution of blocked values."""

from __future__ import annotations

from dataclasses import replace

from opbuild.families.blocked import BIAS, BLOCK, LANE, blocks, result
from opbuild.families.epilogue import Epilogue
from opbuild.families.family import THREADS, Family, Part, Variant
from opbuild.families.tiles import LEAST_BALANCE, Pair, Tiles, balance, cheapest
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand

L1_WEIGHTS = 64 * 1024
"""Bytes of weights of a tile from which input channels are taken in chunks."""

TILES: Tiles = (
    (7, 4, 1.0),
    (4, 4, 1.02),
    (7, 2, 1.06),
    (8, 2, 1.08),
    (4, 2, 1.12),
    (7, 1, 1.4),
    (8, 1, 1.4),
    (4, 1, 1.6),
    (2, 2, 1.9),
    (1, 4, 2.4),
    (1, 2, 3.0),
    (2, 1, 2.5),
    (1, 1, 5.0),
)


def choose(out: Pair, inputs: int, outputs: int, taps: int, machine: Machine) -> Variant:
    """Return the variant for an output.

    ``width`` and ``blocks`` are the register tile. ``chunk``: blocks of input channels in a chunk, 0 for all at once.
    ``divide`` is what a task is: ``range``, a range of rows or of channel blocks, as the kernel decides when called;
    ``both``, where neither gives every core enough: a tile of blocks in one row, or in a few. ``parts``: ranges.

    Args:
        out: Extents of the output (x, y).
        inputs: Input channels.
        outputs: Output channels.
        taps: Taps of the kernel.
        machine: What runs it.
    """
    row, count = out[0], blocks(outputs)
    width, wide = cheapest(TILES, row, count)
    weights = blocks(inputs) * taps * wide * BLOCK * BLOCK * 4
    chunk = max(1, 4 // taps) if weights >= L1_WEIGHTS and row and row % width == 0 else 0
    shared = max(balance(out[1], THREADS), balance(-(-count // wide), THREADS))
    divide = "both" if shared < LEAST_BALANCE else "range"
    return {"width": width, "blocks": wide, "chunk": chunk, "divide": divide, "parts": THREADS}


def describe(
    op_type: str, kernel: Pair, stride: Pair, dilation: Pair, epilogue: Epilogue, variant: Variant, step: int = 1
) -> OpDesc:
    """Return the descriptor of a dense convolution; operands x, w, bias, the epilogue's, out.

    Args:
        op_type: ``Conv`` or ``ConvTranspose``.
        kernel: Taps (x, y).
        stride: Input positions between outputs (x, y).
        dilation: Input positions between taps (x, y).
        epilogue: What is applied to the result.
        variant: Of those that ``choose`` returns.
        step: Positions of memory between outputs of a row; above 1 for one phase of a transposed convolution.
    """
    kx, ky = kernel
    taps, chunked = BLOCK * BLOCK, variant["chunk"] > 0
    weights = (LANE, Dim(BLOCK, BLOCK), Dim(kx, taps), Dim(ky, taps * kx), Dim(stride=taps * kx * ky), Dim())
    # In chunks, constant strides along a row are worth 4% of the time.
    across = BLOCK * stride[0] if chunked else FREE
    along = BLOCK * dilation[0] if chunked and kx > 1 else FREE
    read = (LANE, Dim(stride=across), Dim(), Dim(stride=along), Dim(), Dim())
    x, w = Operand("x", "float32", read, "NC1HWC0"), Operand("w", "float32", weights, "FRACTAL_Z")
    out = result(variant["width"], variant["blocks"], step, divides=chunked)
    inputs = (x, w, BIAS, *epilogue.inputs(step))
    attrs = {"kernel": kernel, **epilogue.attrs}
    return FAMILY.desc((op_type, *epilogue.op_types), inputs, (out,), attrs, variant, epilogue.impl_mode)


def _opened(_desc: OpDesc, operand: Operand, number: int, dim: Dim) -> Dim:
    dim = replace(dim, multiple=1)
    return replace(dim, stride=FREE) if operand.name == "x" and number > 0 else dim


FAMILY = Family(
    "conv",
    choose,
    attributes=("kernel", "epilogue"),
    variant={
        "width": Part(least=1),
        "blocks": Part(least=1),
        "chunk": Part(least=0, milliseconds=70),
        "divide": Part(),
        "parts": Part(),
    },
    types=("float32",),
    milliseconds=120,
    opened=_opened,
)
