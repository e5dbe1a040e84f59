"""The work of a call, counted from its operands: the arithmetic of products and convolutions, and its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.families.catalogue import find
from opbuild.families.family import Dims


def operations(family: str, dims: Sequence[Dims], writes: int) -> int:
    """Return the multiplications and additions of a call, two a pair; 0 for families that are not counted.

    A convolution is counted as the direct algorithm computes it, channels rounded up to whole blocks, whatever the
    kernel does instead: Winograd's may seem faster than the machine.

    Args:
        family: The kernel's family.
        dims: Extents and strides of its operands, innermost first.
        writes: How many of them, the last ones, it writes.
    """
    count = find(family).products
    return 2 * count(dims, dims[-writes]) if count is not None else 0


def touched_bytes(dims: Sequence[Dims], itemsizes: Sequence[int]) -> int:
    """Return the bytes of all operands, each element once."""
    # one that is read again by a stride of 0 is not counted again
    return sum(
        prod(extent for extent, stride in each if stride) * size for each, size in zip(dims, itemsizes, strict=True)
    )
