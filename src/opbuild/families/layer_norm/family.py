"""Normalisations that look at the data: layer, group, instance, root mean square."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.families.dims import free_dims
from opbuild.families.family import Dims, Family, Variant, only_variant, rounded
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine

ROW, VECTOR_TIME = 10, 2
"""Nanoseconds that a row takes, and a vector of it: three passes over it."""


def describe(
    op_type: str, centered: bool, steps: Sequence[int], rounds: str, variant: Variant, impl_mode: str
) -> OpDesc:
    """Return the descriptor; ``steps`` are the innermost strides of scale and bias.

    Operands x, epsilon, scale, perhaps bias, and out.
    """
    dims = free_dims(4, inner_stride=1)
    vectors = tuple(
        Operand(name, "float32", free_dims(4, inner_stride=step))
        for name, step in zip(("scale", "bias"), steps, strict=False)
    )
    inputs = (Operand("x", "float32", dims), Operand("epsilon", "float32", (Dim(1, 1),)), *vectors)
    types, rounding = rounded(rounds)
    attrs = {"centered": centered, "bias": len(steps) > 1, **rounding}
    return FAMILY.desc((op_type, *types), inputs, (Operand("out", "float32", dims),), attrs, variant, impl_mode)


def work(_desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds that a normalisation takes on one core."""
    extents = [extent for extent, _ in shapes[0]]
    return prod(extents) * VECTOR_TIME / machine.lanes + prod(extents[2:]) * ROW


FAMILY = Family(
    "layer_norm",
    only_variant,
    attributes=("centered", "bias", "rounds"),
    types=("float32",),
    milliseconds=105,
    work=work,
)
