"""Running sums and products in Triton: of a tile at once, whose last ones the next tile begins with."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from opbuild.backend.triton.kernel import ADDRESS, EXTENT, STRIDE, Argument, Tiles, TritonKernel
from opbuild.backend.triton.rows import computed_in, first_row, split_known
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> TritonKernel:
    """Return the kernel of a descriptor."""
    parameters = {
        "x": Argument(ADDRESS, 0),
        "out": Argument(ADDRESS, 1),
        "rows": Argument(EXTENT, 0, 0),
        "columns": Argument(EXTENT, 0, 1),
        **{
            f"{name}_{of}": Argument(STRIDE, number, dim)
            for number, name in enumerate(("x", "out"))
            for dim, of in enumerate(("row", "at", "plane"))
        },
    }
    given, known = split_known(desc, parameters)
    rows, dtype = int(desc.variant["rows"]), desc.inputs[0].dtype
    constants: dict[str, Any] = {
        **known,
        "ROWS": rows,
        "BLOCK": int(desc.variant["block"]),
        "KIND": computed_in(desc) if "float" in dtype else getattr(tl, dtype),
        **{name.upper(): bool(desc.attrs[name]) for name in ("product", "exclusive", "reverse")},
    }
    return TritonKernel(scan, given, [[Tiles(1, 0, rows), Tiles(1, 2)]], constants)


@triton.jit
def scan(
    x, out, rows, columns, x_row, x_at, x_plane, out_row, out_at, out_plane,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr,
    PRODUCT: tl.constexpr, EXCLUSIVE: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """Combine the elements of ``ROWS`` rows up to each."""
    first, plane = first_row(tl.program_id(0), rows, ROWS)
    row = first + tl.arange(0, ROWS)[:, None]
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
