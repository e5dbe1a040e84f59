"""Elements of one tensor at places that another one names, in Triton.

How many axes are indexed is a matter of the source, which is therefore generated; what it does to each is below.
"""

from __future__ import annotations

import triton
import triton.language as tl

from opbuild.backend.triton.kernel import EXTENT, STRIDE, Argument, Tiles, TritonKernel, addresses, extents, strides
from opbuild.backend.triton.rows import has_vectors, in_vectors, split_known
from opbuild.backend.triton.source import jit_function
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> TritonKernel:
    """Return the kernel of a descriptor."""
    return _elements(desc) if desc.attrs["kind"] == "elements" else _rows(desc)


def _kernel(desc: OpDesc, body: list[str], parameters: dict[str, Argument], grid: list[Tiles]) -> TritonKernel:
    given, known = split_known(desc, parameters)
    text = f"def gather({', '.join(parameters)}, ROWS: tl.constexpr, BLOCK: tl.constexpr):\n    " + "\n    ".join(body)
    function = jit_function(text + "\n", "gather", {"inside": inside, "tile": tile, "move": move})
    constants = {**known, "ROWS": desc.variant["rows"], "BLOCK": desc.variant["columns"]}
    return TritonKernel(function, given, [grid], constants)


def _rows(desc: OpDesc) -> TritonKernel:
    """Return a kernel that copies rows; each is named by an index, or by one for each of several axes."""
    has_many = desc.attrs["kind"] == "nd"
    axes = len(desc.inputs[0].dims) - 2
    parameters = {
        **addresses("x", "index", "out"),
        **extents(2, columns=0, rows=1),
        **{f"extent{axis}": Argument(EXTENT, 0, 1 + axis) for axis in range(axes)},
        **{f"x{axis}": Argument(STRIDE, 0, 1 + axis) for axis in range(axes)},
        **strides("x", 0, at=0, plane=1 + axes),
        **(strides("index", 1, axis=0, row=1, plane=2) if has_many else strides("index", 1, row=0)),
        **strides("out", 2, at=0, row=1, plane=2),
    }
    body = [
        "first, row, plane = tile(tl.program_id(0), columns, rows, ROWS, BLOCK)",
        "here = row < rows",
        "index += row * index_row" + " + plane * index_plane" * has_many,
        "x += plane * x_plane",
        "out += row * out_row + plane * out_plane",
        *(
            f"x += inside(tl.load(index{f' + {axes - 1 - axis} * index_axis' * has_many}, mask=here, other=0), "
            f"extent{axis}) * x{axis}"
            for axis in range(axes)
        ),
        "move(x, out, here, first, columns, x_at, out_at, ROWS, BLOCK)",
    ]
    columns_tile, rows_tile = int(desc.variant["columns"]), int(desc.variant["rows"])
    return _kernel(desc, body, parameters, [Tiles(2, 0, columns_tile), Tiles(2, 1, rows_tile), Tiles(2, 2)])


def _elements(desc: OpDesc) -> TritonKernel:
    """Return a kernel that copies elements, each of which has an index, in tiles of the two innermost dimensions."""
    rank, axis = len(desc.outputs[0].dims), int(desc.attrs["axis"])
    parameters = {
        **addresses("x", "index", "out"),
        **{f"extent{dim}": Argument(EXTENT, 2, dim) for dim in range(rank)},
        "indexed": Argument(EXTENT, 0, axis),
        **{
            f"{name}{dim}": Argument(STRIDE, number, dim)
            for number, name in enumerate(("x", "index", "out"))
            for dim in range(rank)
        },
    }
    body = ["program = tl.program_id(0)"]
    for dim in range(rank):
        size = ("BLOCK", "ROWS")[dim] if dim < 2 else "1"
        lanes = (" + tl.arange(0, BLOCK)[None, :]", " + tl.arange(0, ROWS)[:, None]")[dim] if dim < 2 else ""
        body += [
            f"p{dim} = (program % tl.cdiv(extent{dim}, {size})).to(tl.int64) * {size}{lanes}",
            f"program = program // tl.cdiv(extent{dim}, {size})",
        ]
    places = {name: " + ".join(f"p{dim} * {name}{dim}" for dim in range(rank)) for name in ("index", "out")}
    fixed = " + ".join(["0", *(f"p{dim} * x{dim}" for dim in range(rank) if dim != axis)])
    body += [
        "here = " + " & ".join(f"(p{dim} < extent{dim})" for dim in range(rank)),
        f"chosen = inside(tl.load(index + ({places['index']}), mask=here, other=0), indexed)",
        f"tl.store(out + ({places['out']}), tl.load(x + ({fixed} + chosen * x{axis}), mask=here), mask=here)",
    ]
    sizes = (int(desc.variant["columns"]), int(desc.variant["rows"]))
    return _kernel(desc, body, parameters, [Tiles(2, dim, sizes[dim] if dim < 2 else 1) for dim in range(rank)])


@triton.jit
def tile(program, columns, rows, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the first column of a program's tile, its rows, and its plane."""
    wide, tall = tl.cdiv(columns, BLOCK), tl.cdiv(rows, ROWS)
    row = (program // wide % tall).to(tl.int64) * ROWS
    if ROWS > 1:
        row = row + tl.arange(0, ROWS)[:, None]
    return program % wide * BLOCK, row, (program // wide // tall).to(tl.int64)


@triton.jit
def inside(index, extent):
    """Return a place in an axis: a negative index counts from its end, and one that is out of range is the nearest."""
    index, extent = index.to(tl.int64), extent.to(tl.int64)
    index = tl.where(index < 0, index + extent, index)
    return tl.maximum(tl.minimum(index, extent - 1), 0)


@triton.jit
def move(x, out, here, first, columns, x_at, out_at, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Copy a tile of rows, 16 bytes at a time where they lie so."""
    if ROWS == 1 and x_at == 1 and out_at == 1:
        if has_vectors(x, columns) & has_vectors(out, columns):
            x, columns = in_vectors(x, columns)
            out, columns = in_vectors(out, columns)
            _move(x, out, here, first, columns, x_at, out_at, BLOCK)
        else:
            _move(x, out, here, first, columns, x_at, out_at, BLOCK)
    else:
        _move(x, out, here, first, columns, x_at, out_at, BLOCK)


@triton.jit
def _move(x, out, here, first, columns, x_at, out_at, BLOCK: tl.constexpr):
    at = first + tl.arange(0, BLOCK)[None, :]
    here = here & (at < columns)
    tl.store(out + at.to(tl.int64) * out_at, tl.load(x + at.to(tl.int64) * x_at, mask=here), mask=here)
