"""Kernels that compute each element of a result from the same element of each operand: their text for any rank.

A program computes a tile of the two innermost dimensions; the others are what is left of its number. Operands may lie
in any way. Of one whose elements are adjacent along a dimension of the tile, 16 bytes are loaded or stored at once
where the tiles of all such operands begin and end at multiples of 16 bytes. Each program asks that of its own tile: a
view may begin anywhere, so no descriptor can say it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opbuild.backend.triton.expression import expression_function
from opbuild.backend.triton.kernel import ADDRESS, EXTENT, STRIDE, Argument, Tiles, TritonKernel
from opbuild.backend.triton.source import jit_function
from opbuild.dtypes import itemsize
from opbuild.kernel.opdesc import FREE, OpDesc
from opbuild.operations.expression import Expression

AT_ONCE = 16
"""The bytes of the widest access to memory."""

ALIGNED = f"""
def aligned(pointer):
    address = pointer.to(tl.int64) // {AT_ONCE} * {AT_ONCE}
    return tl.multiple_of(address.to(pointer.dtype), {AT_ONCE})
"""
"""A function that says of a pointer what was found out."""


TILED = 2
"""The dimensions of a tile."""


def define(desc: OpDesc, expression: Expression) -> TritonKernel:
    """Return the kernel that computes an expression of the inputs, each of the output's extents.

    The variant has the extents of a tile: ``columns`` of dimension 0 and ``rows`` of dimension 1.
    """
    inputs, out = desc.inputs, desc.outputs[0]
    operands = [_Operand(desc, number) for number in range(len(desc.operands))]
    sizes = [int(desc.variant[name]) for name in ("columns", "rows")]
    tile, rank = sizes[: len(out.dims)], len(out.dims)
    arguments = {each.name: Argument(ADDRESS, each.number) for each in operands}
    arguments |= {f"n{dim}": Argument(EXTENT, len(inputs), dim) for dim in range(rank)}
    arguments |= {each.stride(dim): Argument(STRIDE, each.number, dim) for each in operands for dim in each.free}
    names = {
        "expression": expression_function(expression, [each.dtype for each in inputs], out.dtype),
        "aligned": jit_function(ALIGNED, "aligned"),
    }
    lines = [*_indices(tile, rank), *_outer(operands, rank), *_computed(operands, len(tile))]
    text = f"def elements({', '.join(arguments)}):\n" + "".join(f"    {line}\n" for line in lines)
    grid = [Tiles(len(inputs), dim, tile[dim] if dim < len(tile) else 1) for dim in range(rank)]
    return TritonKernel(jit_function(text, "elements", names), arguments, [grid])


class _Operand:
    """An operand: its name, and what is known of its strides.

    Attributes:
        name: Of its pointer.
        number: Its number.
        strides: Its strides, as far as they are known.
        free: The dimensions whose stride is an argument.
        along: The dimension of the tile along which its elements are adjacent; None: neither.
        lanes: How many elements are accessed at once there.
        is_written: Whether it is the output.
    """

    def __init__(self, desc: OpDesc, number: int) -> None:
        operand = desc.operands[number]
        self.name, self.number, self.strides = f"p{number}", number, [dim.stride for dim in operand.dims]
        self.free = [dim for dim, stride in enumerate(self.strides) if stride == FREE]
        self.along = next((dim for dim, stride in enumerate(self.strides[:TILED]) if stride == 1), None)
        self.lanes = max(AT_ONCE // itemsize(operand.dtype), 1)
        self.is_written = number == len(desc.inputs)

    def stride(self, dim: int) -> str:
        """Return the name of a stride, or its number."""
        return f"s{self.number}_{dim}" if dim in self.free else str(self.strides[dim])

    def moving(self, dims: int) -> list[int]:
        """Return the dimensions of the tile, which has so many, along which it does not stay.

        What is written has an address for each element of the tile, also along a dimension of one element.
        """
        return [dim for dim in range(dims) if self.is_written or self.strides[dim] != 0]

    def pointers(self, dims: int, fast: bool) -> str:
        """Return the pointers to a tile."""
        fast = fast and self.along is not None
        start = f"aligned({self.name})" if fast else self.name
        return " + ".join([start, *(self._step(dim, fast) for dim in self.moving(dims))])

    def _step(self, dim: int, fast: bool) -> str:
        if self.strides[dim] == 1:
            return f"i{dim}"
        known = fast and dim in self.free and self.lanes > 1
        stride = self.stride(dim)
        stride = f"tl.multiple_of({stride} // {self.lanes} * {self.lanes}, {self.lanes})" if known else stride
        return f"i{dim}.to(tl.int64) * {stride}"

    def mask(self, dims: int) -> str:
        """Return where a tile is inside, as an argument of a load or a store."""
        inside = [f"(i{dim} < e{dim})" for dim in self.moving(dims)]
        return f", {' & '.join(inside)}" if inside else ""


def _indices(tile: Sequence[int], rank: int) -> Iterator[str]:
    """Yield the lines that compute the indices of a program's tile, and where it ends."""
    axes = ["[None, :]", "[:, None]"] if len(tile) == TILED else [""]
    yield "program = tl.program_id(0)"
    for dim in range(rank):
        size = tile[dim] if dim < len(tile) else 1
        count = f"tl.cdiv(n{dim}, {size})" if size > 1 else f"n{dim}"
        index = f"program % {count}" if dim < rank - 1 else "program"
        if dim < len(tile):
            yield f"start = {index} * {size}"
            yield f"e{dim} = tl.minimum(n{dim}, start + {size})"
            yield f"i{dim} = start + tl.arange(0, {size}){axes[dim]}"
        else:
            yield f"i{dim} = {index}"
        if dim < rank - 1:
            yield f"program = program // {count}"


def _outer(operands: Sequence[_Operand], rank: int) -> Iterator[str]:
    """Yield the lines that move the pointers by the indices of the outer dimensions."""
    for each in operands:
        for dim in range(TILED, rank):
            if each.strides[dim] != 0:
                yield f"{each.name} += i{dim}.to(tl.int64) * {each.stride(dim)}"


def _computed(operands: Sequence[_Operand], dims: int) -> Iterator[str]:
    """Yield the lines that compute a tile: in accesses of 16 bytes if it is possible now."""
    adjacent = [each for each in operands if each.along is not None and each.lanes > 1]
    if adjacent:
        yield f"if {' & '.join(_conditions(adjacent, dims))}:"
        for dim, lanes in sorted(_multiples(adjacent).items()):
            yield f"    e{dim} = tl.multiple_of(e{dim} // {lanes} * {lanes}, {lanes})"
        yield from (f"    {line}" for line in _body(operands, dims, fast=True))
        yield "else:"
        yield from (f"    {line}" for line in _body(operands, dims, fast=False))
    else:
        yield from _body(operands, dims, fast=False)


def _multiples(adjacent: Sequence[_Operand]) -> dict[int, int]:
    """Return of what the end of a tile must be a multiple, by dimension."""
    along = {each.along for each in adjacent if each.along is not None}
    return {dim: max(each.lanes for each in adjacent if each.along == dim) for dim in along}


def _conditions(adjacent: Sequence[_Operand], dims: int) -> Iterator[str]:
    """Yield what must hold for accesses of 16 bytes."""
    yield f"(({' | '.join(f'{each.name}.to(tl.int64)' for each in adjacent)}) % {AT_ONCE} == 0)"
    yield from (f"(e{dim} % {lanes} == 0)" for dim, lanes in sorted(_multiples(adjacent).items()))
    for each in adjacent:
        yield from (f"({each.stride(dim)} % {each.lanes} == 0)" for dim in each.free if dim < dims)


def _body(operands: Sequence[_Operand], dims: int, fast: bool) -> Iterator[str]:
    *inputs, out = operands
    loads = [f"tl.load({each.pointers(dims, fast)}{each.mask(dims)})" for each in inputs]
    yield f"tl.store({out.pointers(dims, fast)}, expression({', '.join(loads)}){out.mask(dims)})"
