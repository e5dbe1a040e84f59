"""ArgMax and ArgMin in Triton: of rows, or of columns side by side."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from opbuild.backend.triton.kernel import Tiles, TritonKernel, addresses, extents, strides
from opbuild.backend.triton.rows import own_rows, row_kernel
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> TritonKernel:
    """Return the kernel of a descriptor."""
    axis, row = (0, 1) if desc.attrs["layout"] == "inner" else (1, 0)
    parameters = {
        **addresses("x", "out"),
        **extents(0, rows=row, columns=axis),
        **strides("x", 0, row=row, at=axis, plane=2),
        **strides("out", 1, row=0, plane=1),
    }
    dtype = desc.inputs[0].dtype
    constants: dict[str, Any] = {
        "KEY": tl.int64 if dtype.endswith("64") else tl.int32,
        "MOST": 2 ** (63 if dtype.endswith("64") else 31) - 1,
        "LEAST": bool(desc.attrs["least"]),
        "LAST": bool(desc.attrs["last"]),
    }
    return row_kernel(arg_reduce, desc, parameters, [Tiles(1, 0, desc.variant["rows"]), Tiles(1, 1)], constants)


@triton.jit
def arg_reduce(
    x, out, rows, columns, x_row, x_at, x_plane, out_row, out_plane,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, KEY: tl.constexpr, MOST: tl.constexpr,
    LEAST: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """Write the places of the best elements of ``ROWS`` rows."""
    row, plane = own_rows(tl.program_id(0), rows, ROWS)
    x += plane * x_plane + row * x_row
    at = tl.arange(0, BLOCK)[None, :]
    # Lanes that have seen nothing lose against all others: a row has an element.
    best = tl.where((row < rows) & (at < 0), 0, -MOST - 1).to(KEY)
    place = tl.where((row < rows) & (at < 0), 0, -1 if LAST else 2147483647).to(tl.int32)
    for start in range(0, columns, BLOCK):
        here = (row < rows) & (start + at < columns)
        key = _key(tl.load(x + (start + at).to(tl.int64) * x_at, mask=here, other=0), KEY, MOST, LEAST)
        is_better = here & ((key > best) | ((key == best) & (LAST | (place == 2147483647))))
        best = tl.where(is_better, key, best)
        place = tl.where(is_better, start + at, place)
    top = tl.max(best, 1)[:, None]
    found = tl.max(tl.where(best == top, place, -1), 1) if LAST else tl.min(tl.where(best == top, place, 2147483647), 1)
    to = out + plane * out_plane + row * out_row
    tl.store(to, found[:, None].to(tl.int64), mask=row < rows)


@triton.jit
def _key(x, KEY: tl.constexpr, MOST: tl.constexpr, LEAST: tl.constexpr):
    """Return the integer that stands for an element: the greater, the better; NaN wins, zeros are equal."""
    if x.dtype.is_floating():
        if x.dtype.primitive_bitwidth == 16:
            x = x.to(tl.float32)
        bits = x.to(KEY, bitcast=True)
        key = tl.where(bits < 0, bits ^ MOST, bits)
        key = tl.where(x == 0, 0, key)
        return tl.where(x != x, MOST, ~key if LEAST else key)
    else:
        key = x.to(KEY)
        return ~key if LEAST else key
