"""Descriptors of the convolution families: operands, attributes, and the extents for which each variant is legal."""

from __future__ import annotations

from typing import Any

from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand
from opbuild.lowering.epilogue import BLOCKED_DIMS, CHANNEL_DIMS, Epilogue
from opbuild.lowering.operands import BLOCK
from opbuild.lowering.tiles import DirectTile, FirstTile, PlaneTile, WinogradTile
from opbuild.lowering.windows import Pair

BIAS = Operand("bias", "float32", CHANNEL_DIMS, "NC1HWC0")
BLOCKED_INPUT = Operand("x", "float32", BLOCKED_DIMS, "NC1HWC0")
_LANE = Dim(BLOCK, 1)


def direct(
    op_type: str, kernel: Pair, stride: Pair, dilation: Pair, epilogue: Epilogue, tile: DirectTile, step: int = 1
) -> OpDesc:
    """Return the descriptor of a dense convolution; operands x, w, bias, the epilogue's, out.

    Args:
        op_type: ``Conv`` or ``ConvTranspose``.
        kernel: Taps (x, y).
        stride: Input positions between outputs (x, y).
        dilation: Input positions between taps (x, y).
        epilogue: What is applied to the result.
        tile: The variant.
        step: Positions of memory between outputs of a row; above 1 for one phase of a transposed convolution.
    """
    kx, ky = kernel
    taps = BLOCK * BLOCK
    weights = (_LANE, Dim(BLOCK, BLOCK), Dim(kx, taps), Dim(ky, taps * kx), Dim(stride=taps * kx * ky), Dim())
    return OpDesc(
        op_types=(op_type, *epilogue.op_types),
        family="conv",
        attrs={"kernel": kernel, **epilogue.attrs},
        inputs=(
            _taps(kernel[0], stride[0], dilation[0], tile),
            Operand("w", "float32", weights, "FRACTAL_Z"),
            BIAS,
            *epilogue.inputs(step),
        ),
        outputs=(_output(tile.width, tile.blocks, step, divides=tile.chunk > 0),),
        variant={
            "width": tile.width,
            "blocks": tile.blocks,
            "chunk": tile.chunk,
            "divide": tile.divide,
            "parts": tile.parts,
        },
        impl_mode=epilogue.impl_mode,
    )


def grouped(
    op_type: str,
    kernel: Pair,
    stride: Pair,
    dilation: Pair,
    epilogue: Epilogue,
    tile: PlaneTile,
    masked: bool,
    step: int = 1,
) -> OpDesc:
    """Return the descriptor of a grouped convolution.

    Operands are x, w, bias, channel, group, segments, the epilogue's, out. ``masked``: groups end inside blocks.
    """
    kx, ky = kernel
    weights = (_LANE, Dim(stride=BLOCK), Dim(kx), Dim(ky), Dim())
    tables = (
        Operand("channel", "int32", (Dim(stride=1),)),
        Operand("group", "int32", CHANNEL_DIMS),
        Operand("segments", "int32", (Dim(stride=1),)),
    )
    return OpDesc(
        op_types=(op_type, *epilogue.op_types),
        family="conv_grouped",
        attrs={"kernel": kernel, "stride": stride, "dilation": dilation, "masked": masked, **epilogue.attrs},
        inputs=(BLOCKED_INPUT, Operand("w", "float32", weights, "FRACTAL_Z"), BIAS, *tables, *epilogue.inputs(step)),
        outputs=(_output(tile.width, 1, step),),
        variant={"width": tile.width, "divide": tile.divide, "parts": tile.parts},
        impl_mode=epilogue.impl_mode,
    )


def depthwise(kernel: Pair, stride: Pair, dilation: Pair, epilogue: Epilogue, tile: PlaneTile) -> OpDesc:
    """Return the descriptor of a depthwise convolution; operands x, w, bias, the epilogue's, out."""
    kx, ky = kernel
    weights = (_LANE, Dim(kx, BLOCK), Dim(ky, BLOCK * kx), Dim(stride=BLOCK * kx * ky))
    return OpDesc(
        op_types=("Conv", *epilogue.op_types),
        family="conv_depthwise",
        attrs={"kernel": kernel, "stride": stride, "dilation": dilation, **epilogue.attrs},
        inputs=(BLOCKED_INPUT, Operand("w", "float32", weights, "FRACTAL_Z"), BIAS, *epilogue.inputs()),
        outputs=(_output(tile.width, 1),),
        variant={"width": tile.width, "divide": tile.divide, "parts": tile.parts},
        impl_mode=epilogue.impl_mode,
    )


def first_layer(
    kernel: Pair, stride: Pair, dilation: Pair, before: Pair, epilogue: Epilogue, tile: FirstTile
) -> OpDesc:
    """Return the descriptor of a convolution of a plain value; operands x, w, bias, the epilogue's, out."""
    kx, ky = kernel
    weights = (_LANE, Dim(kx, BLOCK), Dim(ky, BLOCK * kx), Dim(stride=BLOCK * kx * ky), Dim())
    image = Operand("x", "float32", (Dim(stride=1, min=1), Dim(min=1), Dim()), "NCHW")
    return OpDesc(
        op_types=("Conv", *epilogue.op_types),
        family="conv_first",
        attrs={"kernel": kernel, "stride": stride, "dilation": dilation, "before": before, **epilogue.attrs},
        inputs=(image, Operand("w", "float32", weights, "FRACTAL_Z"), BIAS, *epilogue.inputs()),
        outputs=(_output(tile.width, tile.blocks),),
        variant={"width": tile.width, "blocks": tile.blocks, "rows": tile.rows, "parts": tile.parts},
        impl_mode=epilogue.impl_mode,
    )


def winograd(epilogue: Epilogue, tile: WinogradTile) -> OpDesc:
    """Return the descriptor of a 3 x 3 convolution by Winograd: operands x, u, bias, the epilogue's, out."""
    points = (tile.tile + 2) ** 2
    weights = (_LANE, Dim(stride=BLOCK, multiple=BLOCK), Dim(), Dim(points))
    out = (
        _LANE,
        Dim(stride=BLOCK, multiple=tile.tile * tile.chunk_x),
        Dim(multiple=tile.tile * tile.chunk_y),
        Dim(min=tile.blocks),
    )
    return OpDesc(
        op_types=("Conv", *epilogue.op_types),
        family="winograd",
        attrs=epilogue.attrs,
        inputs=(BLOCKED_INPUT, Operand("u", "float32", weights, "FRACTAL_Z"), BIAS, *epilogue.inputs()),
        outputs=(Operand("out", "float32", out, "NC1HWC0"),),
        variant=_winograd_variant(tile),
        impl_mode=epilogue.impl_mode,
    )


def _taps(kernel: int, stride: int, dilation: int, tile: DirectTile) -> Operand:
    """Return what is read at each tap: in chunks, constant strides along a row are worth 4% of the time."""
    across = BLOCK * stride if tile.chunk else FREE
    along = BLOCK * dilation if tile.chunk and kernel > 1 else FREE
    return Operand("x", "float32", (_LANE, Dim(stride=across), Dim(), Dim(stride=along), Dim(), Dim()), "NC1HWC0")


def _winograd_variant(tile: WinogradTile) -> dict[str, Any]:
    return {
        "tile": tile.tile,
        "chunk_x": tile.chunk_x,
        "chunk_y": tile.chunk_y,
        "width": tile.width,
        "height": tile.height,
        "blocks": tile.blocks,
        "parts": tile.parts,
    }


def _output(width: int, blocks: int, step: int = 1, divides: bool = False) -> Operand:
    """Return a blocked output whose tile has these extents; its tails are shifted inwards, so no extent may be below.

    Where the width ``divides`` the row, there is no tail.
    """
    least_width = width if width > 1 else 0
    least_blocks = blocks if blocks > 1 else 0
    dims = (
        _LANE,
        Dim(stride=BLOCK * step, min=least_width, multiple=width if divides else 1),
        Dim(),
        Dim(min=least_blocks),
    )
    return Operand("out", "float32", dims, "NC1HWC0")
