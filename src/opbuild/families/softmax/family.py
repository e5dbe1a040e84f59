"""Softmax and its logarithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from opbuild.families.dims import VECTOR, free_dims
from opbuild.families.family import Dims, Family, Variant, VariantPart, rounded, zeroed
from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand
from opbuild.target.machine import Machine

STACK_ROW = 4096
"""Longest row of which the powers are kept on the stack."""

ROW, VECTOR_TIME = 35, 5
"""Nanoseconds that a row takes, and a vector of it: three passes over it, an exponential in one of them."""


def choose(log: bool, inner: bool, columns: int, row: int, machine: Machine) -> Variant:
    """Return the variant.

    Args:
        log: Whether it is the logarithm, which keeps no row.
        inner: Whether the axis is the innermost dimension.
        columns: Elements behind the axis.
        row: Elements along it.
        machine: What runs it.
    """
    if inner:
        return {"row": "stack" if log or row <= STACK_ROW else "heap"}
    return {"lanes": VECTOR if columns >= VECTOR else 1}


def candidates(log: bool, inner: bool, columns: int, row: int, machine: Machine) -> list[Variant]:
    """Return the variants among which tuning searches; the arguments are those of ``choose``."""
    own = choose(log, inner, columns, row, machine)
    return [own, {"row": "heap"}] if inner and not log and own["row"] == "stack" else [own]


def describe(
    log: bool, inner: bool, rounds: str, zeros: str, variant: Variant, impl_mode: str, *, is_turned: bool = False
) -> OpDesc:
    """Return the descriptor; operands x and out, the ``inner`` dimension being the axis, or else the middle one.

    ``is_turned``: the elements along the axis are adjacent although it is the middle dimension.
    """
    limit, stride = STACK_ROW if variant.get("row") == "stack" and not log else FREE, FREE if is_turned else 1
    x = Operand("x", "float32", free_dims(3, inner_stride=stride, inner_min=variant.get("lanes", 0), inner_max=limit))
    out = Operand("out", "float32", free_dims(3, inner_stride=stride))
    types, rounding = rounded(rounds)
    attrs = {"log": log, "axis": "inner" if inner else "outer", **rounding, **zeroed(zeros)}
    return FAMILY.desc(("LogSoftmax" if log else "Softmax", *types), (x,), (out,), attrs, variant, impl_mode)


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds that a softmax takes on one core."""
    elements, columns = prod(extent for extent, _ in shapes[0]), int(desc.variant.get("lanes", 1))
    row = shapes[0][0 if desc.attrs["axis"] == "inner" else 1][0]
    lanes = 1 if "lanes" in desc.variant and columns == 1 else machine.lanes
    return elements * VECTOR_TIME / lanes + elements / max(1, row * columns) * ROW


def _least_row(attrs: Mapping[str, Any]) -> str:
    return "stack" if attrs["log"] else "heap"


def _opened(_desc: OpDesc, _operand: Operand, _number: int, dim: Dim) -> Dim:
    return Dim(dim.extent, dim.stride, dim.min, FREE, dim.multiple)


FAMILY = Family(
    "softmax",
    choose,
    attributes=("log", "axis", "rounds", "zeros"),
    variant={"lanes": VariantPart(least=1), "row": VariantPart(least=_least_row)},
    types=("float32",),
    milliseconds=105,
    least_extent=1,
    opened=_opened,
    work=work,
    candidates=candidates,
)
