"""Elements of a tensor replaced, or combined with others, in Triton.

A program has its own places of all dimensions but those that are indexed, and writes its updates in their order: so the
last of several stays, and sums have one order. How many dimensions there are is a matter of the source.
"""

from __future__ import annotations

import triton
import triton.language as tl

from opbuild.backend.triton.kernel import EXTENT, STRIDE, Argument, Tiles, TritonKernel, addresses, extents
from opbuild.backend.triton.rows import split_known
from opbuild.backend.triton.source import jit_function
from opbuild.families.cuda import MOST
from opbuild.kernel.opdesc import OpDesc

_OPERANDS = ("indices", "updates", "out")


def define(desc: OpDesc) -> TritonKernel:
    """Return the kernel of a descriptor."""
    return _rows(desc) if desc.attrs["kind"] == "rows" else _elements(desc)


def _strides(desc: OpDesc) -> dict[str, Argument]:
    return {
        f"{name}{dim}": Argument(STRIDE, number, dim)
        for number, name in enumerate(_OPERANDS)
        for dim in range(len(desc.operands[number].dims))
    }


def _kernel(desc: OpDesc, body: list[str], parameters: dict[str, Argument], grid: list[Tiles]) -> TritonKernel:
    parameters = {**addresses(*_OPERANDS), **parameters}
    given, known = split_known(desc, parameters)
    text = f"def scatter({', '.join(parameters)}, ROWS: tl.constexpr, BLOCK: tl.constexpr, REDUCTION: tl.constexpr):\n"
    function = jit_function(
        text + "".join(f"    {line}\n" for line in body), "scatter", {"found": found, "write": write}
    )
    constants = {
        **known,
        "ROWS": desc.variant["rows"],
        "BLOCK": desc.variant["columns"],
        "REDUCTION": desc.attrs["reduction"],
    }
    return TritonKernel(function, given, [grid], constants)


def _rows(desc: OpDesc) -> TritonKernel:
    """Return a kernel of rows, each of which has an index for each of several axes."""
    axes, columns = len(desc.outputs[0].dims) - 1, int(desc.variant["columns"])
    parameters = {
        **extents(1, columns=0, count=1),
        **{f"extent{axis}": Argument(EXTENT, 2, 1 + axis) for axis in range(axes)},
        **_strides(desc),
    }
    body = [
        "at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)",
        "out += at * out0",
        "updates += at * updates0",
        "for number in range(count):",
        "    step, to, here = tl.cast(number, tl.int64), out, at < columns",
    ]
    for axis in range(axes):
        body += [
            f"    index = tl.load(indices + {axes - 1 - axis} * indices0 + step * indices1)",
            f"    place, inside = found(index, extent{axis})",
            f"    to, here = to + place * out{1 + axis}, here & inside",
        ]
    body += ["    write(to, updates + step * updates1, here, REDUCTION)"]
    return _kernel(desc, body, parameters, [Tiles(1, 0, columns)])


def _elements(desc: OpDesc) -> TritonKernel:
    """Return a kernel of elements, each of which has an index along one axis."""
    rank, axis = len(desc.outputs[0].dims), int(desc.attrs["axis"])
    kept = [dim for dim in range(rank) if dim != axis]
    parameters = {
        **{f"extent{dim}": Argument(EXTENT, 1, dim) for dim in range(rank)},
        "indexed": Argument(EXTENT, 2, axis),
        **_strides(desc),
    }
    lanes = {
        **({kept[0]: ("BLOCK", " + tl.arange(0, BLOCK)[None, :]")} if kept else {}),
        **({kept[1]: ("ROWS", " + tl.arange(0, ROWS)[:, None]")} if kept[1:] else {}),
    }
    body = ["program, here = tl.program_id(0), tl.full((1, 1), 1, tl.int1)"]
    for dim in kept:
        size, places = lanes.get(dim, ("1", ""))
        body += [
            f"p{dim} = (program % tl.cdiv(extent{dim}, {size})).to(tl.int64) * {size}{places}",
            f"program = program // tl.cdiv(extent{dim}, {size})",
            f"here = here & (p{dim} < extent{dim})",
        ]
    offset = {
        name: " + ".join(["tl.zeros((1, 1), tl.int64)", *(f"p{d} * {name}{d}" for d in kept)]) for name in _OPERANDS
    }
    body += [
        *(f"{name}_at = {name} + ({offset[name]})" for name in _OPERANDS),
        f"for number in range(extent{axis}):",
        "    step = tl.cast(number, tl.int64)",
        f"    place, inside = found(tl.load(indices_at + step * indices{axis}, mask=here, other=0), indexed)",
        f"    write(out_at + place * out{axis}, updates_at + step * updates{axis}, here & inside, REDUCTION)",
    ]
    sizes = {dim: int(desc.variant["columns" if size == "BLOCK" else "rows"]) for dim, (size, _) in lanes.items()}
    grid = [Tiles(1, dim, sizes.get(dim, 1)) for dim in kept] or [Tiles(1, 0, MOST)]
    return _kernel(desc, body, parameters, grid)


@triton.jit
def found(index, extent):
    """Return the place that an index means, counted from the front, and whether there is one."""
    index, extent = index.to(tl.int64), extent.to(tl.int64)
    index = tl.where(index < 0, index + extent, index)
    inside = (index >= 0) & (index < extent)
    return tl.where(inside, index, 0), inside


@triton.jit
def write(to, source, here, REDUCTION: tl.constexpr):
    """Write updates, or what they and the elements that are there make together."""
    value = tl.load(source, mask=here)
    if REDUCTION != "none":
        tl.debug_barrier()  # what was written is read, by whichever thread
        old = tl.load(to, mask=here)
        if REDUCTION == "add":
            value = old + value
        elif REDUCTION == "mul":
            value = old * value
        elif REDUCTION == "max":
            value = tl.where((old > value) | (old != old), old, value)
        else:
            value = tl.where((old < value) | (old != old), old, value)
    tl.store(to, value, mask=here)
