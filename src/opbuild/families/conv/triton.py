"""Convolutions in Triton: implicit products of matrices, and depthwise ones.

``out[o, g, u, v, n] = epilogue(sum over k of x[i, g, x(u, k), y(v, k), n] * w[k, o, g])``, where an output has a row of
a matrix that nobody writes: what it reads at each tap, 0 beyond the edges. Operands, innermost dimension first:

* ``x``: ``(input channels of a group, groups, W, H, N, rows)`` with any strides; rows are all outputs' positions of all
  images, and repeat it.
* ``w``: ``(taps * input channels of a group, output channels of a group, groups)``, input channels innermost.
* those of the epilogue and ``out``: ``(output channels of a group, groups, W, H, N)``.

Attributes: ``kernel``, ``stride``, ``dilation`` and ``before``, the padding on the left and at the top, as (x, y);
``is_padded``, whether any tap lies beyond an edge; ``is_depthwise``; ``epilogue`` as products have it.

Variant: of products as in ``families.matmul.triton``; of depthwise ones ``columns`` channels and ``rows`` positions.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from opbuild.backend.triton.kernel import Tiles, TritonKernel
from opbuild.backend.triton.parameters import Index, KernelParameters
from opbuild.families.matmul.triton import element_of, kernel, stored
from opbuild.kernel.opdesc import OpDesc

_GROUP, _SPATIAL, _OUTPUTS = 1, (2, 3), 5
"""Dimensions of ``x``."""


def define(desc: OpDesc) -> TritonKernel:
    """Return the kernel of a descriptor."""
    return _by_channel(desc) if desc.attrs["is_depthwise"] else _product(desc)


def _product(desc: OpDesc) -> TritonKernel:
    out = len(desc.inputs)
    rows, columns, depth = (int(desc.variant[name]) for name in ("rows", "columns", "depth"))
    given = KernelParameters(desc)
    count, n, groups = given.extent(0, _OUTPUTS), given.extent(out, 0), given.extent(out, 1)
    lines = [
        f"row, column, group, _ = tile_of(tl.program_id(0), {count}, {n}, {groups}, {rows}, {columns}, GROUP)",
        f"rows, columns = row * {rows} + tl.arange(0, {rows}), column * {columns} + tl.arange(0, {columns})",
        *_positions(desc, given, "group"),
        f"total = sum_of_windows(x, {given.place(1, ['', '', 'group'])}, first, columns, {n}, {given.extent(1, 0)}, "
        f"{given.extent(0, 0)}, {given.stride(0, 0)}, {given.stride(1, 0)}, {given.stride(1, 1)}, {_read(given)}, "
        f"KERNEL, DILATION, PADDED, {rows}, {columns}, {depth}, ELEMENT, SUM)",
        *_stored(desc, given, Index("columns.to(tl.int64)[None, :]", f"(columns < {n})[None, :]"), Index("group")),
    ]
    grid = [[Tiles(0, _OUTPUTS, rows), Tiles(out, 0, columns), Tiles(out, 1)]]
    constants = {**_geometry(desc), "GROUP": int(desc.variant["group"]), "ELEMENT": element_of(desc)}
    return kernel(desc, given, lines, grid, constants, sum_of_windows=sum_of_windows)


def _by_channel(desc: OpDesc) -> TritonKernel:
    out, rows, columns = len(desc.inputs), int(desc.variant["rows"]), int(desc.variant["columns"])
    given = KernelParameters(desc)
    n = given.extent(out, 1)
    lines = [
        f"across = tl.cdiv({n}, {columns})",
        f"rows = tl.program_id(0) // across * {rows} + tl.arange(0, {rows})",
        f"columns = tl.program_id(0) % across * {columns} + tl.arange(0, {columns})",
        *_positions(desc, given, ""),
        f"total = sums_by_channel(x, {given.place(1, [])}, first, columns, {n}, {given.stride(0, _GROUP)}, "
        f"{given.stride(1, 0)}, {given.stride(1, 2)}, {_read(given)}, "
        f"KERNEL, DILATION, PADDED, {rows}, {columns}, SUM)",
        *_stored(desc, given, Index(""), Index("columns.to(tl.int64)[None, :]", f"(columns < {n})[None, :]")),
    ]
    grid = [[Tiles(0, _OUTPUTS, rows), Tiles(out, 1, columns)]]
    return kernel(desc, given, lines, grid, _geometry(desc), sums_by_channel=sums_by_channel)


def _positions(desc: OpDesc, given: KernelParameters, group: str) -> list[str]:
    """Return the lines that say where outputs lie, and where each begins to read; those beyond the last are the first.

    ``first`` has the position of the first tap, which may lie beyond an edge, and ``x`` its address.
    """
    out = len(desc.inputs)
    wide, high = given.extent(out, 2), given.extent(out, 3)
    x = given.place(0, ["", group, "first[0].to(tl.int64)", "first[1].to(tl.int64)", "image"])
    return [
        f"inside = rows < {given.extent(0, _OUTPUTS)}",
        "rows = tl.where(inside, rows, 0)",
        f"wide, high, image = rows % {wide}, rows // {wide} % {high}, (rows // {wide} // {high}).to(tl.int64)",
        "first = wide * STRIDE[0] - BEFORE[0], high * STRIDE[1] - BEFORE[1]",
        f"x = {x}",
    ]


def _read(given: KernelParameters) -> str:
    """Return the extents and strides of an image that is read."""
    return ", ".join((*(given.extent(0, dim) for dim in _SPATIAL), *(given.stride(0, dim) for dim in _SPATIAL)))


def _geometry(desc: OpDesc) -> dict[str, Any]:
    names = {"KERNEL": "kernel", "STRIDE": "stride", "DILATION": "dilation", "BEFORE": "before"}
    pairs = {name: tuple(map(int, desc.attrs[of])) for name, of in names.items()}
    return {**pairs, "PADDED": bool(desc.attrs["is_padded"])}


def _stored(desc: OpDesc, given: KernelParameters, *channel: Index) -> list[str]:
    places = Index("wide.to(tl.int64)[:, None]"), Index("high.to(tl.int64)[:, None]")
    return stored(desc, given, (*channel, *places, Index("image[:, None]", "inside[:, None]")))


# -- in Triton ---------------------------------------------------------------------------------------------------------


@triton.jit
def moved(tap, KERNEL: tl.constexpr, DILATION: tl.constexpr):
    """Return the places of a tap behind the first one, as (x, y)."""
    return tap % KERNEL[0] * DILATION[0], tap // KERNEL[0] * DILATION[1]


@triton.jit
def is_inside(first, tap, width, height):
    """Return whether taps lie in the image, given the first one's places and theirs behind it."""
    i, j = first[0][:, None] + tap[0], first[1][:, None] + tap[1]
    return (i >= 0) & (i < width) & (j >= 0) & (j < height)


@triton.jit
def sum_of_windows(
    x, w, first, columns, n, k, channels, x_c, w_k, w_o, width, height, x_w, x_h,
    KERNEL: tl.constexpr, DILATION: tl.constexpr, PADDED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ELEMENT: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Return a tile of sums of what outputs read at each tap, channel by channel; columns beyond the edge read at 0."""
    inner = tl.arange(0, BLOCK_K)
    columns = tl.where(columns < n, columns, 0)
    from_w = w + inner.to(tl.int64)[:, None] * w_k + columns.to(tl.int64)[None, :] * w_o
    total = tl.zeros((BLOCK_M, BLOCK_N), SUM)
    for start in range(0, k, BLOCK_K):
        at = start + inner
        mask = (at < k)[None, :]
        offset = at
        if KERNEL[0] * KERNEL[1] > 1:
            offset = at % channels
        from_x = x[:, None] + offset.to(tl.int64)[None, :] * x_c
        if KERNEL[0] * KERNEL[1] > 1 or PADDED:
            tap = moved((at // channels)[None, :], KERNEL, DILATION)
            from_x += tap[0].to(tl.int64) * x_w + tap[1].to(tl.int64) * x_h
            if PADDED:
                mask = mask & is_inside(first, tap, width, height)
        left = tl.load(from_x, mask=mask, other=0.0).to(ELEMENT)
        right = tl.load(from_w, mask=(at < k)[:, None], other=0.0).to(ELEMENT)
        total = tl.dot(left, right, total, input_precision="ieee", out_dtype=SUM)
        from_w += BLOCK_K * w_k
    return total


@triton.jit
def sums_by_channel(
    x, w, first, columns, n, x_c, w_k, w_c, width, height, x_w, x_h,
    KERNEL: tl.constexpr, DILATION: tl.constexpr, PADDED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Return the sums of all taps of some positions and channels."""
    columns = columns[None, :]
    inside = columns < n
    from_x, from_w = x[:, None] + columns.to(tl.int64) * x_c, w + columns.to(tl.int64) * w_c
    total = tl.zeros((BLOCK_M, BLOCK_N), SUM)
    WIDE: tl.constexpr = KERNEL[0]
    for j in range(KERNEL[1]):
        for i in tl.static_range(WIDE):
            tap, mask = (i * DILATION[0], j * DILATION[1]), inside
            if PADDED:
                mask = mask & is_inside(first, tap, width, height)
            value = tl.load(from_x + (tap[0] * x_w + tap[1] * x_h), mask=mask, other=0.0).to(SUM)
            total += value * tl.load(from_w + (j * WIDE + i) * w_k, mask=inside, other=0.0).to(SUM)
    return total
