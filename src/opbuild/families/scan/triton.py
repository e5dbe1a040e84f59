"""Running sums and products in Triton: of a tile at once, whose last ones the next tile begins with."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from opbuild.backend.triton.kernel import Tiles, TritonKernel, addresses, extents, strides
from opbuild.backend.triton.rows import computed_in, own_rows, row_kernel
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> TritonKernel:
    """Return the kernel of a descriptor."""
    parameters = {
        **addresses("x", "out"),
        **extents(0, rows=0, columns=1),
        **strides("x", 0, row=0, at=1, plane=2),
        **strides("out", 1, row=0, at=1, plane=2),
    }
    dtype = desc.inputs[0].dtype
    constants: dict[str, Any] = {
        "KIND": computed_in(desc) if "float" in dtype else getattr(tl, dtype),
        **{name.upper(): bool(desc.attrs[name]) for name in ("product", "exclusive", "reverse")},
    }
    return row_kernel(scan, desc, parameters, [Tiles(1, 0, desc.variant["rows"]), Tiles(1, 2)], constants)


@triton.jit
def scan(
    x, out, rows, columns, x_row, x_at, x_plane, out_row, out_at, out_plane,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr,
    PRODUCT: tl.constexpr, EXCLUSIVE: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """Combine the elements of ``ROWS`` rows up to each."""
    row, plane = own_rows(tl.program_id(0), rows, ROWS)
    x += plane * x_plane + row * x_row
    out += plane * out_plane + row * out_row
    at = tl.arange(0, BLOCK)[None, :]
    before = tl.full((ROWS, 1), 1 if PRODUCT else 0, KIND)
    for start in range(0, columns, BLOCK):
        number = start + at
        here = (row < rows) & (number < columns)
        own = number - 1 if EXCLUSIVE else number
        place = columns - 1 - own if REVERSE else own
        values = tl.load(x + place.to(tl.int64) * x_at, mask=here & (own >= 0), other=1 if PRODUCT else 0).to(KIND)
        found = tl.cumprod(values, 1) * before if PRODUCT else tl.cumsum(values, 1) + before
        before = tl.sum(tl.where(at == BLOCK - 1, found, 0), 1, dtype=KIND)[:, None]
        to = columns - 1 - number if REVERSE else number
        tl.store(out + to.to(tl.int64) * out_at, found.to(out.dtype.element_ty), mask=here)
