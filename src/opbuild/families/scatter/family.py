"""Elements of a tensor replaced, or combined with others, at places that another tensor names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.families.dims import inner_dim, storage_type, vector_width
from opbuild.families.family import FLOATS, INTEGERS, Dims, Family, Variant, VariantPart, elements
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine

TYPES = (*FLOATS, *INTEGERS, "int8", "int16", "uint8", "uint16", "uint32", "uint64")
"""Element types that are combined; elements that replace others may be of any type."""


def choose(row: int, itemsize: int, _machine: Machine) -> Variant:
    """Return the variant for rows of ``row`` elements, which are copied as vectors."""
    return {"width": vector_width(row, itemsize)}


def work(desc: OpDesc, shapes: Sequence[Dims], _machine: Machine) -> float:
    """Return the nanoseconds on one core: 1 for each update that is no row, and a tenth for each element of one."""
    return elements(shapes[1]) * (1.0 if desc.attrs["kind"] == "elements" or desc.variant["width"] == 1 else 0.1)


def describe(
    op_type: str, attrs: Mapping[str, Any], types: tuple[str, str], views: Sequence[Dims], variant: Variant
) -> OpDesc:
    """Return the descriptor; operands indices, updates and out, ``types`` those of out and of the indices.

    What ``out`` holds before is read: it is written in part.
    """
    indices, updates, out = views
    moved = storage_type(types[0]) if attrs["reduction"] == "none" else types[0]
    width = variant["width"]
    rows = width if attrs["kind"] == "rows" else 1
    inputs = (
        Operand("indices", types[1], _dims(indices, 1)),
        Operand("updates", moved, _dims(updates, rows)),
    )
    return FAMILY.desc((op_type,), inputs, (Operand("out", moved, _dims(out, width)),), attrs, variant)


def _dims(view: Dims, width: int) -> tuple[Dim, ...]:
    first = inner_dim(view[0][1], width)
    return (Dim(stride=first.stride, min=max(first.min, 1)), *(Dim(min=1) for _ in view[1:]))


FAMILY = Family(
    "scatter",
    choose,
    attributes=("kind", "axis", "covers", "reduction"),
    variant={"width": VariantPart(least=1)},
    least_extent=1,
    work=work,
    any_stride=True,
    updates=True,
)
