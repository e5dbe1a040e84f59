"""Products of matrices and vectors on NVIDIA's GPUs: which kernel is taken."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.families.cuda import on_device
from opbuild.families.fitting import Place, fitted
from opbuild.families.matmul.cuda import are_served, item_of, line
from opbuild.graph.extents import example_value
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.records import replace

MANY = 1 << 10
"""Products of a row, where nothing is known of them."""


def serve(desc: OpDesc) -> OpDesc | None:
    """Return the device's descriptor; None if the CPU computes it."""
    return on_device(desc, line(MANY, item_of(desc), is_along_k=True)) if are_served(desc) else None


def fit(desc: OpDesc, places: Sequence[Place]) -> OpDesc:
    """Return the descriptor of the kernel that is likely to be fast on a call's operands."""
    axes = {"matrix": "krbc", "vector": "kbc", "out": "rbc", **{each.name: "rbc" for each in desc.inputs[2:]}}
    desc, aligned = fitted(desc, places, axes)
    along, across = (dim.stride == 1 for dim in desc.inputs[0].dims[:2])
    variant = line(example_value(places[0].dims[0][0]), item_of(desc), is_along_k=along or not across)
    return replace(desc, variant={**variant, "aligned": " ".join(aligned)})
