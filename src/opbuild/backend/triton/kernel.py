"""Kernels in Triton as families define them: the function, and how it is launched on operands of any size.

A launch follows from a call's operands alone, so that its form is part of the artifact: every number that a kernel is
given is an operand's address, extent or stride, and every extent of its grid a product of numbers of tiles.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from opbuild.platform.records import NamedTuple, dataclass, field

ADDRESS, EXTENT, STRIDE = "address", "extent", "stride"


class Argument(NamedTuple):
    """A number that a kernel is given.

    Attributes:
        kind: ``address`` of an operand's element with all indices 0 (a pointer), ``extent`` of a dimension (int32), or
            its ``stride`` in elements (int64).
        operand: The number of the operand, inputs before outputs.
        dim: The number of the dimension, innermost first, as in the descriptor.
    """

    kind: str
    operand: int
    dim: int = 0


def addresses(*names: str) -> dict[str, Argument]:
    """Return the addresses of operands, which are numbered in this order."""
    return {name: Argument(ADDRESS, number) for number, name in enumerate(names)}


def extents(operand: int, **dims: int) -> dict[str, Argument]:
    """Return the extents of an operand's dimensions."""
    return {name: Argument(EXTENT, operand, dim) for name, dim in dims.items()}


def strides(name: str, operand: int, **dims: int) -> dict[str, Argument]:
    """Return the strides of an operand's dimensions, ``<name>_<dimension>``."""
    return {f"{name}_{of}": Argument(STRIDE, operand, dim) for of, dim in dims.items()}


class Tiles(NamedTuple):
    """A number of tiles: the extent of a dimension divided by that of a tile, rounded up."""

    operand: int
    dim: int
    size: int = 1


@dataclass(frozen=True)
class TritonKernel:
    """A kernel of a family.

    Attributes:
        function: The function, decorated by ``triton.jit``. Nothing is launched where a product of the grid is 0, so
            that every extent that the grid counts is at least 1.
        arguments: What it is given, by the names of its parameters, in their order.
        constants: The values of its other parameters.
        grid: For each axis, ``x`` first, what is multiplied. Only ``x`` may exceed 65,535.
        aligned: Parameters that are multiples of 16: addresses in bytes, extents and strides in elements. The
            descriptor must say so, too (``Dim.multiple``).
        warps: Warps of a program.
        stages: Stages into which loops are pipelined.
    """

    function: Any
    arguments: Mapping[str, Argument]
    grid: Sequence[Sequence[Tiles]]
    constants: Mapping[str, Any] = field(default_factory=dict)
    aligned: Collection[str] = ()
    warps: int = 4
    stages: int = 3
