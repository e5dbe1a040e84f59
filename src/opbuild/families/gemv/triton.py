"""Products of matrices and vectors in Triton.

``out[r, ...] = epilogue(sum over k of matrix[k, r, ...] * vector[k, ...])``, as many times as there are batches, up to
two dimensions of them. The attribute ``epilogue``, sums and ``aligned`` are those of ``families.matmul.triton``.

Variant: ``columns`` rows whose products are added up at once, ``depth`` at a time; ``warps`` and ``stages``. It has no
limits.
"""

from __future__ import annotations

from opbuild.backend.triton.kernel import Tiles, TritonKernel
from opbuild.backend.triton.parameters import Index, KernelParameters
from opbuild.families.matmul.triton import batch_extent, dot_products, is_whole, kernel, stored
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> TritonKernel:
    """Return the kernel of a descriptor."""
    out, rows, depth = len(desc.inputs), int(desc.variant["columns"]), int(desc.variant["depth"])
    given = KernelParameters(desc)
    m, k, batch = given.extent(out, 0), given.extent(0, 0), batch_extent(desc, given, 1)
    batches = ["batch0", "batch1"][: len(desc.outputs[0].dims) - 1]
    lines = dot_products(
        (m, k, batch),
        (given.place(0, ["", "", *batches]), given.stride(0, 0), given.stride(0, 1)),
        (given.place(1, ["", *batches]), given.stride(1, 0)),
        (rows, depth, is_whole(desc, 0, 1)),
    )
    indices = (Index("rows.to(tl.int64)", f"(rows < {m})"), *map(Index, batches))
    lines = [*lines, *stored(desc, given, indices)]
    return kernel(desc, given, lines, [[Tiles(out, 0, rows), *(Tiles(out, 1 + i) for i in range(len(batches)))]], {})
