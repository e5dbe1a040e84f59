"""Running sums and products along one axis."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.families.dims import free_dims
from opbuild.families.family import (
    FLOATS,
    INTEGERS,
    Dims,
    Family,
    Variant,
    VariantPart,
    elements,
    lanes_of_row,
    moved_bytes,
)
from opbuild.kernel.opdesc import OpDesc, Operand
from opbuild.target.machine import Machine


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds on one core: an element waits 1 for the one before it, where columns are too few."""
    return elements(shapes[0]) * 1.0 if desc.variant["lanes"] == 1 else moved_bytes(desc, shapes, machine)


def describe(op_type: str, exclusive: bool, reverse: bool, dtype: str, variant: Variant, impl_mode: str) -> OpDesc:
    """Return the descriptor of a ``CumSum`` or ``CumProd``; operands x and out ``(I, C, rows)``."""
    dims = free_dims(3, inner_stride=1, inner_min=variant["lanes"])
    operands = tuple(Operand(name, dtype, dims) for name in ("x", "out"))
    attrs = {"product": op_type == "CumProd", "exclusive": exclusive, "reverse": reverse}
    return FAMILY.desc((op_type,), operands[:1], operands[1:], attrs, variant, impl_mode)


FAMILY = Family(
    "scan",
    lanes_of_row,
    attributes=("product", "exclusive", "reverse"),
    variant={"lanes": VariantPart(least=1)},
    work=work,
    types=(*FLOATS, *INTEGERS, "uint32", "uint64"),
    least_extent=1,
)
