"""Expressions of operands that broadcast together, one element at a time."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.dtypes import itemsize
from opbuild.families.dims import vector_width
from opbuild.families.family import Dims, Family, Variant, VariantPart, elements, moved_bytes
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import cost, from_json, walk
from opbuild.operations.record import Cost
from opbuild.target.machine import Machine

HEAVY = 6.0
"""Nanoseconds that one core takes for a function such as exp of a vector: 5 to 7."""

VECTOR_BYTES = (64, 128, 32, 16)
"""Bytes that a loop may take at once: one, two or four registers of a level, or a part of one."""

ORDINARY = 0.3
"""Nanoseconds that one core takes for an operation such as an addition of a vector."""


def choose(row: int, itemsize: int, adjacent: bool, _machine: Machine) -> Variant:
    """Return the variant.

    Args:
        row: Elements of an innermost row.
        itemsize: Bytes of the widest operand's elements.
        adjacent: Whether neighbours in a row are adjacent in the output.
    """
    width = vector_width(row, max(itemsize, 2)) if adjacent else 1
    return {"width": width}


def candidates(row: int, itemsize: int, adjacent: bool, machine: Machine) -> list[Variant]:
    """Return the variants among which tuning searches; the arguments are those of ``choose``."""
    own = choose(row, itemsize, adjacent, machine)
    widths = (size // max(itemsize, 2) for size in VECTOR_BYTES)
    others = [{"width": width} for width in widths if own["width"] > 1 and 1 < width <= row]
    return [own, *(each for each in others if each != own)]


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core: those of the operations, or of moving the operands."""
    parts = [part for part in walk(from_json(list(desc.attrs["expression"]))) if part[0] not in ("arg", "const")]
    each = sum(HEAVY if cost(part) == Cost.HEAVY else ORDINARY for part in parts)
    size = max(itemsize(operand.dtype) for operand in desc.operands)
    lanes = 4 * machine.lanes / size if desc.variant["width"] > 1 else 1
    vectors = elements(shapes[-1]) / lanes
    return max(vectors * each, moved_bytes(desc, shapes, machine))


FAMILY = Family(
    "elementwise",
    choose,
    attributes=("expression",),
    variant={"width": VariantPart(least=1)},
    milliseconds=70,
    any_stride=True,
    any_rank=True,
    work=work,
    candidates=candidates,
    is_certain=True,
    overwrites=True,
)
