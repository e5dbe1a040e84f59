"""Normalisations that look at the data: layer, group, instance, root mean square."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.families.dims import free_dims
from opbuild.families.family import PARALLEL, THREADS, Family, Variant
from opbuild.families.softmax.family import SERIAL
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import Dim, OpDesc, Operand


def choose(rows: int, elements: int, machine: Machine) -> Variant:
    """Return the variant for so many rows and elements."""
    return {"parallel": THREADS > 1 and elements >= SERIAL and rows > 1}


def describe(op_type: str, centered: bool, steps: Sequence[int], variant: Variant, impl_mode: str) -> OpDesc:
    """Return the descriptor; ``steps`` are the innermost strides of scale and bias.

    Operands x, epsilon, scale, perhaps bias, and out.
    """
    dims = free_dims(4, inner_stride=1)
    vectors = tuple(
        Operand(name, "float32", free_dims(4, inner_stride=step))
        for name, step in zip(("scale", "bias"), steps, strict=False)
    )
    inputs = (Operand("x", "float32", dims), Operand("epsilon", "float32", (Dim(1, 1),)), *vectors)
    attrs = {"centered": centered, "bias": len(steps) > 1}
    return FAMILY.desc((op_type,), inputs, (Operand("out", "float32", dims),), attrs, variant, impl_mode)


FAMILY = Family(
    "layer_norm",
    choose,
    attributes=("centered", "bias"),
    variant={"parallel": PARALLEL},
    types=("float32",),
    milliseconds=105,
)
