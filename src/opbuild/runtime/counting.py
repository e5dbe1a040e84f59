"""What a call does, counted from its operands: the arithmetic of products and convolutions, and its bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from opbuild.families.family import Dims, elements

Count = Callable[[Sequence[Dims], Dims], int]
"""Returns the multiplications of a call, given its operands and the first that it writes."""

INPUTS = 3
"""Rank of the inputs of a recurrence; products of them, where its kernel does not make these, have a rank of 5."""


def _per_output(first: int, last: int) -> Count:
    """Return the count of a convolution: an output has the taps and channels that its weights' dimensions hold."""
    return lambda dims, out: elements(out) * elements(dims[1][first:last])


def _product(dims: Sequence[Dims], out: Dims) -> int:
    return elements(out) * dims[0][0][0]


def _attention(dims: Sequence[Dims], _: Dims) -> int:
    (size, _stride), (rows, _stride), *batch = dims[0]
    return rows * dims[1][0][0] * elements(batch) * (size + dims[2][0][0])


def _weight_gradient(dims: Sequence[Dims], out: Dims) -> int:
    return elements(out) * elements((*dims[0][1:3], dims[0][4]))


def _recurrence(dims: Sequence[Dims], out: Dims) -> int:
    """Count the products with the state, and those with the inputs where the kernel makes them, too."""
    hidden, gates = out[0][0], dims[0][1][0]
    if len(dims[0]) == INPUTS:
        hidden, gates = hidden + dims[0][0][0], dims[1][1][0]
    return elements(out) * gates * hidden


_COUNTS: dict[str, Count] = {
    "conv": _per_output(1, 5),
    "conv_first": _per_output(1, 4),
    "conv_grouped": _per_output(1, 4),
    "conv_depthwise": _per_output(1, 3),
    "conv_integer": lambda dims, out: elements(out) * dims[1][0][0] * elements(dims[1][2:6]),
    "conv_integer_depthwise": _per_output(1, 3),
    "conv_weight_gradient": _weight_gradient,
    "winograd": lambda dims, out: elements(out) * 9 * dims[1][1][0],
    "winograd_integer": lambda dims, out: elements(out) * 9 * 16 * dims[1][3][0],
    "matmul": _product,
    "gemv": _product,
    "matmul_integer": _product,
    "matmul_nbits": _product,
    "attention": _attention,
    "recurrent": _recurrence,
}


def operations(family: str, dims: Sequence[Dims], writes: int) -> int:
    """Return the multiplications and additions of a call, two a pair; 0 for families that are not counted.

    A convolution is counted as the direct algorithm computes it, channels rounded up to whole blocks, whatever the
    kernel does instead: Winograd's may seem faster than the machine.

    Args:
        family: The kernel's family.
        dims: Extents and strides of its operands, innermost first.
        writes: How many of them, the last ones, it writes.
    """
    count = _COUNTS.get(family)
    return 2 * count(dims, dims[-writes]) if count is not None else 0


def touched_bytes(dims: Sequence[Dims], itemsizes: Sequence[int]) -> int:
    """Return the bytes of all operands, each element once."""
    # one that is read again by a stride of 0 is not counted again
    return sum(
        prod(extent for extent, stride in each if stride) * size for each, size in zip(dims, itemsizes, strict=True)
    )
