"""Places of the greatest or least elements along one axis, in order."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from opbuild.families.dims import free_dims
from opbuild.families.family import FLOATS, INTEGERS, Dims, Family, Variant, VariantPart
from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand
from opbuild.target.machine import Machine

TYPES = (*FLOATS, *INTEGERS, "int8", "int16", "uint8", "uint16", "uint32", "uint64")

MOST_RANKED = 256
"""Elements up to which each is compared with each other one, 16 at once; sorting by digits costs its tables."""

CHUNKS = (32, 128)
"""Elements of a chunk. As many chunks are sorted as elements are wanted, and the greatest elements of all chunks."""

GAIN = 4
"""How many times fewer elements must be left to sort for chunks to pay."""


def choose(extent: int, count: int, _machine: Machine) -> Variant:
    """Return the variant for ``count`` of ``extent`` elements.

    ``chunk``: of which as many are looked at as elements are wanted, 0 for all elements; ``digits``: whether they are
    sorted by digits, not by comparing each with each.
    """
    left, chunk = min((ceil(extent / size) + count * size, size) for size in CHUNKS)
    if extent > MOST_RANKED and GAIN * left < extent:
        return {"chunk": chunk, "digits": left > MOST_RANKED}
    return {"chunk": 0, "digits": extent > MOST_RANKED}


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core: 4 an element and digit, or a vector of comparisons an element."""
    (extent, _), *rows = shapes[0]
    count = 1
    for rows_extent, _ in rows:
        count *= rows_extent
    wanted, chunk = shapes[2][0][0], int(desc.variant["chunk"])
    left = extent if not chunk else ceil(extent / chunk) + wanted * chunk
    digits = _bytes(desc.inputs[0].dtype)
    each = 4.0 * digits if desc.variant["digits"] else max(left, machine.lanes) / machine.lanes
    return count * (0.5 * extent + each * left)


def _bytes(dtype: str) -> int:
    return int("".join(c for c in dtype if c.isdigit())) // 8


def describe(least: bool, dtype: str, adjacent: bool, variant: Variant) -> OpDesc:
    """Return the descriptor of a ``TopK``'s indices; operands x, wanted and out.

    Args:
        least: Whether the least elements are wanted.
        dtype: Element type of x.
        adjacent: Whether the elements that are compared are adjacent in x.
        variant: Of those that ``choose`` returns.
    """
    x = Operand("x", dtype, (Dim(stride=1 if adjacent else FREE, min=1), Dim(), Dim()))
    wanted, out = Operand("wanted", "int32", (Dim(stride=0),)), Operand("out", "int64", free_dims(3))
    return FAMILY.desc(("TopK",), (x, wanted), (out,), {"least": least}, variant)


FAMILY = Family(
    "top_k",
    choose,
    attributes=("least",),
    variant={"chunk": VariantPart(least=0, lacking=2.0), "digits": VariantPart(lacking=1.0, milliseconds=200)},
    work=work,
    types=TYPES,
    milliseconds=150,
    least_extent=1,
    any_stride=True,
)
