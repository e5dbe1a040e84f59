"""Pools over whole planes of blocked values."""

from __future__ import annotations

from opbuild.families.blocked import CHANNEL_DIMS, IMAGE
from opbuild.families.family import Family, Variant, VariantPart, moving
from opbuild.kernel.opdesc import HIGH_PERFORMANCE, OpDesc, Operand
from opbuild.target.machine import Machine

PARTIALS = (4, 2, 8)
"""Sums of a row that are kept apart, the usual number first."""


def choose(_machine: Machine) -> Variant:
    """Return the variant."""
    return {"partials": PARTIALS[0]}


def candidates(_machine: Machine) -> list[Variant]:
    """Return the variants among which tuning searches; the arguments are those of ``choose``."""
    return [{"partials": partials} for partials in PARTIALS]


def describe(kind: str, variant: Variant, impl_mode: str = HIGH_PERFORMANCE) -> OpDesc:
    """Return the descriptor of a pool of a kind, ``max`` or ``average``; operands x ``(16, W, H, C1)``, out."""
    out = Operand("out", "float32", CHANNEL_DIMS, "NC1HWC0")
    name = "GlobalMaxPool" if kind == "max" else "GlobalAveragePool"
    return FAMILY.desc((name,), (IMAGE,), (out,), {"kind": kind}, variant, impl_mode)


FAMILY = Family(
    "global_pool",
    choose,
    attributes=("kind",),
    variant={"partials": VariantPart()},
    types=("float32",),
    work=moving(0.5),  # only read
    milliseconds=65,
    candidates=candidates,
)
