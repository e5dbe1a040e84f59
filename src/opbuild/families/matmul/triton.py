"""Products of matrices in Triton.

``out[n, m] = epilogue(sum over k of lhs[k, m] * rhs[n, k])``, as many times as there are batches, up to two dimensions
of them. Attributes:

* ``rhs``: how the right operand lies. ``plain``: ``(N, K, ...)`` with any strides, ``(K, N, ...)`` if its format is
  ``turned``. ``panels``: ``(32, K, N/32, ...)``, the columns in panels of 32. ``parts``: there is none, and ``lhs`` has
  sums of parts of K, ``(parts, N, M)``, which are added up in their order.
* ``epilogue``: an expression over the sum and the operands after ``rhs``, each of the output's rank.
* ``precision``: ``tf32`` if numbers of float32 may lose digits where they are multiplied.

Variant: ``rows``, ``columns`` and ``depth`` of a tile; ``group``, how many rows of tiles are computed column by column;
``warps`` and ``stages``; ``aligned``, the operands, by name, whose address and strides are multiples of 16, but for the
one of 1 that their rows, or columns, then have. With one of ``rows`` there is a single one, and no tensor cores are
used. Else no variant has limits, but for those multiples.

Sums are float32, of float64 float64. What has 16 bits is multiplied as it is, beside float32 as float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl

from opbuild.backend.triton.expression import expression_function
from opbuild.backend.triton.kernel import EXTENT, Tiles, TritonKernel
from opbuild.backend.triton.parameters import Index, KernelParameters
from opbuild.backend.triton.source import jit_function
from opbuild.families.fitting import ALIGNED
from opbuild.families.layouts import PANEL
from opbuild.families.matmul.cuda import TURNED
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json


def define(desc: OpDesc) -> TritonKernel:
    """Return the kernel of a descriptor."""
    if desc.attrs["rhs"] == "parts":
        return _sum_of_parts(desc)
    return _single_row(desc) if desc.variant["rows"] == 1 else _tiles(desc)


def _tiles(desc: OpDesc) -> TritonKernel:
    variant, out = desc.variant, len(desc.inputs)
    rows, columns, depth = (int(variant[name]) for name in ("rows", "columns", "depth"))
    given = KernelParameters(desc)
    m, n, k = given.extent(out, 1), given.extent(out, 0), given.extent(0, 0)
    batch = batch_extent(desc, given, 2)
    batches = ["batch0", "batch1"][: len(desc.outputs[0].dims) - 2]
    panel = PANEL if desc.attrs["rhs"] == "panels" else 0
    before = ["", "", ""] if panel else ["", ""]
    of_n, of_k = _rhs_dims(desc)
    of_lhs = given.place(0, ["", "", *batches]), given.stride(0, 0), given.stride(0, 1)
    of_rhs = (
        given.place(1, [*before, *batches][: len(desc.inputs[1].dims)]), given.stride(1, of_n), given.stride(1, of_k)
    )  # fmt: skip
    step = given.stride(1, 2) if panel else "0"
    whole = is_whole(desc, 0, 1), is_whole(desc, 1, of_n)
    indices = (
        Index("columns.to(tl.int64)[None, :]", f"(columns < {n})[None, :]"),
        Index("rows.to(tl.int64)[:, None]", f"(rows < {m})[:, None]"),
        *map(Index, batches),
    )
    lines = [
        f"row, column, batch0, batch1 = tile_of(tl.program_id(0), {m}, {n}, {batch}, {rows}, {columns}, GROUP)",
        f"rows, columns = row * {rows} + tl.arange(0, {rows}), column * {columns} + tl.arange(0, {columns})",
        f"total = sum_of_products({of_lhs[0]}, {of_rhs[0]}, rows, columns, {m}, {n}, {k}, {', '.join(of_lhs[1:])}, "
        f"{', '.join(of_rhs[1:])}, {step}, {rows}, {columns}, {depth}, {panel}, {whole[0]}, {whole[1]}, "
        "ELEMENT, SUM, PRECISION)",
        *stored(desc, given, indices),
    ]
    constants = {
        "GROUP": int(variant["group"]),
        "ELEMENT": element_of(desc),
        "PRECISION": str(desc.attrs.get("precision", "ieee")),
    }
    grid = [[Tiles(out, 1, rows), Tiles(out, 0, columns), *(Tiles(out, 2 + i) for i in range(len(batches)))]]
    return kernel(desc, given, lines, grid, constants)


def _single_row(desc: OpDesc) -> TritonKernel:
    out, columns, depth = len(desc.inputs), int(desc.variant["columns"]), int(desc.variant["depth"])
    given = KernelParameters(desc)
    n, k, batch = given.extent(out, 0), given.extent(0, 0), batch_extent(desc, given, 2)
    batches = ["batch0", "batch1"][: len(desc.outputs[0].dims) - 2]
    of_n, of_k = _rhs_dims(desc)
    matrix = given.place(1, ["", "", *batches][: len(desc.inputs[1].dims)])
    lines = dot_products(
        (n, k, batch),
        (matrix, given.stride(1, of_k), given.stride(1, of_n)),
        (given.place(0, ["", "", *batches]), given.stride(0, 0)),
        (columns, depth, is_whole(desc, 1, of_n)),
    )
    indices = (Index("rows.to(tl.int64)", f"(rows < {n})"), Index(""), *map(Index, batches))
    lines = [*lines, *stored(desc, given, indices)]
    return kernel(desc, given, lines, [[Tiles(out, 0, columns), *(Tiles(out, 2 + i) for i in range(len(batches)))]], {})


def _sum_of_parts(desc: OpDesc) -> TritonKernel:
    out, columns = len(desc.inputs), int(desc.variant["columns"])
    given = KernelParameters(desc)
    n = given.extent(out, 0)
    indices = (Index("columns.to(tl.int64)", f"(columns < {n})"), Index("row"))
    lines = [
        f"tiles = tl.cdiv({n}, {columns})",
        "row = (tl.program_id(0) // tiles).to(tl.int64)",
        f"columns = tl.program_id(0) % tiles * {columns} + tl.arange(0, {columns})",
        f"total = tl.zeros(({columns},), SUM)",
        f"for part in range(0, {given.extent(0, 0)}):",
        f"    total += {given.load(0, (Index('part'), *indices))}",
        *stored(desc, given, indices),
    ]
    return kernel(desc, given, lines, [[Tiles(out, 0, columns), Tiles(out, 1)]], {})


def _rhs_dims(desc: OpDesc) -> tuple[int, int]:
    """Return the dimensions of the right operand along N and K."""
    return (1, 0) if desc.inputs[1].format == TURNED else (0, 1)


# -- what kernels of products share ------------------------------------------------------------------------------------


def kernel(
    desc: OpDesc,
    given: KernelParameters,
    lines: Sequence[str],
    grid: Sequence[Sequence[Tiles]],
    constants: dict[str, Any],
    **functions: Any,
) -> TritonKernel:
    """Return the kernel of a product, whose last line stores it.

    Args:
        desc: The descriptor.
        given: The parameters that the text mentions.
        lines: The text of the function.
        grid: As in ``TritonKernel``.
        constants: What the text mentions beside ``SUM``.
        functions: Those that it calls beside the ones of products.
    """
    constants = {**constants, "SUM": getattr(tl, _sum_type(desc))}
    names = [*given.arguments, *(f"{name}: tl.constexpr" for name in constants)]
    text = "\n    ".join([f"def {desc.family}({', '.join(names)}):", *lines])
    dtypes, out = [each.dtype for each in desc.inputs[_factors(desc) :]], desc.outputs[0].dtype
    known = {
        "tile_of": tile_of,
        "sum_of_products": sum_of_products,
        "sum_of_row": sum_of_row,
        **functions,
        "epilogue": expression_function(from_json(desc.attrs["epilogue"]), dtypes, out, _sum_type(desc)),
    }
    return TritonKernel(
        jit_function(text + "\n", desc.family, known),
        given.arguments,
        grid,
        constants,
        _aligned(desc, given),
        warps=int(desc.variant["warps"]),
        stages=int(desc.variant["stages"]),
    )


def stored(desc: OpDesc, given: KernelParameters, indices: Sequence[Index]) -> list[str]:
    """Return the lines that store what the epilogue makes of ``total``."""
    operands = (given.load(number, indices) for number in range(_factors(desc), len(desc.inputs)))
    return [given.store(len(desc.inputs), indices, f"epilogue({', '.join((*operands, 'total'))})")]


def dot_products(
    extents: tuple[str, str, str], matrix: tuple[str, str, str], vector: tuple[str, str], block: tuple[int, int, bool]
) -> list[str]:
    """Return the lines that compute ``total``, the products of a program's rows of a matrix and a vector.

    Args:
        extents: Rows, products of each, and the extent of the inner dimension of batches.
        matrix: Its address, and strides along a row and between rows.
        vector: Its address and stride.
        block: Rows at once, products of each, and whether neighbouring rows are adjacent, and 16 of them inside or not.
    """
    (m, k, batch), (rows, depth, is_whole) = extents, block
    return [
        f"tiles = tl.cdiv({m}, {rows})",
        f"rows, batch = tl.program_id(0) % tiles * {rows} + tl.arange(0, {rows}), tl.program_id(0) // tiles",
        f"batch0, batch1 = (batch % {batch}).to(tl.int64), (batch // {batch}).to(tl.int64)",
        f"total = sum_of_row({matrix[0]}, {vector[0]}, rows, {m}, {k}, {matrix[1]}, {matrix[2]}, {vector[1]}, "
        f"{rows}, {depth}, {is_whole}, SUM)",
    ]


def batch_extent(desc: OpDesc, given: KernelParameters, dim: int) -> str:
    """Return the extent of the output's inner dimension of batches; 1 if it has none."""
    return given.extent(len(desc.inputs), dim) if len(desc.outputs[0].dims) > dim else "1"


def is_whole(desc: OpDesc, number: int, dim: int) -> bool:
    """Return whether neighbours along a dimension are adjacent, and as many as pass at once."""
    operand = desc.inputs[number]
    return operand.name in desc.variant["aligned"].split() and operand.dims[dim].stride == 1


def _aligned(desc: OpDesc, given: KernelParameters) -> tuple[str, ...]:
    """Return the parameters that are multiples of 16."""
    named = desc.variant.get("aligned", "").split()
    operands = [number for number, operand in enumerate(desc.operands) if operand.name in named]
    extents = (
        name
        for name, (kind, number, dim) in given.arguments.items()
        if kind == EXTENT and desc.operands[number].dims[dim].multiple % ALIGNED == 0
    )
    return (*extents, *(name for number in operands for name in given.of(number)))


def _factors(desc: OpDesc) -> int:
    """Return how many operands stand before those of the epilogue."""
    return 1 if desc.attrs.get("rhs") == "parts" else 2


def _sum_type(desc: OpDesc) -> str:
    return "float64" if desc.inputs[0].dtype == "float64" else "float32"


def element_of(desc: OpDesc) -> Any:
    """Return the type in which numbers are multiplied: that of both operands, or of the one that has more digits."""
    types = {operand.dtype for operand in desc.inputs[:2]}
    return getattr(tl, types.pop() if len(types) == 1 else "float32")


# -- in Triton ---------------------------------------------------------------------------------------------------------


@triton.jit
def tile_of(program, m, n, batch, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Return a program's tile and the numbers of its batch: ``GROUP`` rows of tiles are computed column by column."""
    rows_of_tiles, columns_of_tiles = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    tiles = rows_of_tiles * columns_of_tiles
    tile, number = program % tiles, program // tiles
    in_group = GROUP * columns_of_tiles
    first = tile // in_group * GROUP
    rows = tl.minimum(rows_of_tiles - first, GROUP)
    place = tile % in_group
    return first + place % rows, place // rows, (number % batch).to(tl.int64), (number // batch).to(tl.int64)


@triton.jit
def sum_of_products(
    lhs, rhs, rows, columns, m, n, k, lhs_k, lhs_m, rhs_n, rhs_k, rhs_panel,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PANEL: tl.constexpr,
    WHOLE_M: tl.constexpr, WHOLE_N: tl.constexpr, ELEMENT: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return a tile of sums; rows and columns beyond the edge read those at 0.

    Where their numbers are multiples of 16 and they are adjacent, 16 of them are inside or 16 of them are not.
    """
    inner = tl.arange(0, BLOCK_K)
    rows, columns = tl.where(rows < m, rows, 0), tl.where(columns < n, columns, 0)
    if WHOLE_M:
        rows = tl.max_contiguous(tl.multiple_of(rows, 16), 16)
    if WHOLE_N:
        columns = tl.max_contiguous(tl.multiple_of(columns, 16), 16)
    from_lhs = lhs + rows.to(tl.int64)[:, None] * lhs_m + inner.to(tl.int64)[None, :] * lhs_k
    if PANEL:
        at = (columns % PANEL).to(tl.int64) * rhs_n + (columns // PANEL).to(tl.int64) * rhs_panel
    else:
        at = columns.to(tl.int64) * rhs_n
    from_rhs = rhs + inner.to(tl.int64)[:, None] * rhs_k + at[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), SUM)
    for start in range(0, k, BLOCK_K):
        left = tl.load(from_lhs, mask=inner[None, :] < k - start, other=0.0).to(ELEMENT)
        right = tl.load(from_rhs, mask=inner[:, None] < k - start, other=0.0).to(ELEMENT)
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=SUM)
        from_lhs += BLOCK_K * lhs_k
        from_rhs += BLOCK_K * rhs_k
    return total


@triton.jit
def sum_of_row(
    matrix, vector, rows, m, k, matrix_k, matrix_m, vector_k,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, WHOLE_M: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """Return the products of some rows of a matrix and a vector; rows beyond the edge read that at 0."""
    inner = tl.arange(0, BLOCK_K)
    rows = tl.where(rows < m, rows, 0)
    if WHOLE_M:
        rows = tl.max_contiguous(tl.multiple_of(rows, 16), 16)
    from_matrix = matrix + rows.to(tl.int64)[:, None] * matrix_m
    from_matrix += inner.to(tl.int64)[None, :] * matrix_k
    from_vector = vector + inner.to(tl.int64) * vector_k
    total = tl.zeros((BLOCK_M, BLOCK_K), SUM)
    for start in range(0, k, BLOCK_K):
        left = tl.load(from_matrix, mask=inner[None, :] < k - start, other=0.0).to(SUM)
        right = tl.load(from_vector, mask=inner < k - start, other=0.0).to(SUM)
        total += left * right[None, :]
        from_matrix += BLOCK_K * matrix_k
        from_vector += BLOCK_K * vector_k
    return tl.sum(total, 1)
