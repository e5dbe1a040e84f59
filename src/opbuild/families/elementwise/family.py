"""Expressions of operands that broadcast together, one element at a time."""

from __future__ import annotations

from opbuild.families.dims import vector_width
from opbuild.families.family import THREADS, Family, Part, Variant
from opbuild.kernel.machine import Machine

PARALLEL_WORK = 1 << 17
"""Work, in elements times operations, from which on waking a second thread costs less than it saves."""


def choose(row: int, itemsize: int, adjacent: bool, work: int, machine: Machine) -> Variant:
    """Return the variant.

    Args:
        row: Elements of an innermost row.
        itemsize: Bytes of the widest operand's elements.
        adjacent: Whether neighbours in a row are adjacent in the output.
        work: Elements times operations.
        machine: What runs it.
    """
    width = vector_width(row, max(itemsize, 2)) if adjacent else 1
    return {"width": width, "parallel": THREADS > 1 and work >= PARALLEL_WORK}


FAMILY = Family(
    "elementwise",
    choose,
    attributes=("expression",),
    variant={"width": Part(least=1), "parallel": Part(False, lacking=3.0)},
    milliseconds=70,
    any_stride=True,
    any_rank=True,
)
