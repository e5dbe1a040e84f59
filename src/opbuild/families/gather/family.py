"""Elements of one tensor at places that another one names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.dtypes import itemsize
from opbuild.families.dims import inner_dim, storage_type, vector_width
from opbuild.families.family import BYTES, Dims, Family, Variant, VariantPart, elements
from opbuild.graph.extents import is_one, is_step
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine


def choose(row: int, itemsize: int, kind: str, _machine: Machine) -> Variant:
    """Return the variant for an output in rows of ``row``; single elements are gathered one by one."""
    return {"width": 1 if kind == "elements" else vector_width(row, itemsize)}


def work(desc: OpDesc, shapes: Sequence[Dims], _machine: Machine) -> float:
    """Return the nanoseconds on one core: of copying the gathered elements; one that is moved by itself takes 1."""
    size = itemsize(desc.outputs[0].dtype)
    return elements(shapes[-1]) * (1.0 if desc.variant["width"] == 1 else 2 * size / BYTES)


def describe(
    op_type: str, attrs: Mapping[str, Any], types: tuple[str, str], views: tuple[Dims, Dims, Dims], variant: Variant
) -> OpDesc:
    """Return the descriptor; operands x, indices and out, ``types`` those of the first two, ``views`` their dims."""
    x, indices, out = views
    moved, width = storage_type(types[0]), variant["width"]
    inputs = (Operand("x", moved, _dims(x, width, 1)), Operand("indices", types[1], _dims(indices, 1, 0)))
    return FAMILY.desc((op_type,), inputs, (Operand("out", moved, _dims(out, width, 0)),), attrs, variant)


def _dims(view: Dims, width: int, least: int) -> tuple[Dim, ...]:
    extent, stride = view[0]
    first = inner_dim(1 if is_one(extent) and width == 1 and not is_step(stride) else stride, width)
    return (Dim(stride=first.stride, min=max(first.min, least)), *(Dim(min=least) for _ in view[1:]))


FAMILY = Family(
    "gather",
    choose,
    attributes=("kind", "axis"),
    variant={"width": VariantPart(least=1)},
    least_extent=1,
    work=work,
    any_stride=True,
)
