"""Lowering to kernels that are there already, where none can be compiled.

Lowering picks for each call the variant that is fastest for its extents. Which variants all sizes of a range pick can
not be told without looking at every size; but a kernel of another variant computes the same wherever its limits
(``OpDesc.problem``) allow, and each family has a variant without limits. So a file that holds that variant of every
operator, and the variants of the sizes that are likely, serves every size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import log2
from typing import Any, Protocol

from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand
from opbuild.lowering.matrix_variant import PANEL
from opbuild.lowering.operands import BLOCK
from opbuild.lowering.reorder import from_blocked, to_blocked
from opbuild.lowering.transfer import copy
from opbuild.program import View
from opbuild.text.canonical import canonical_json

VECTOR = 16

Call = tuple[OpDesc, tuple[View, ...]]

LOOPS = ("elementwise", "copy")
"""Families whose operands all have the same dimensions, so that dimensions of one element may be added."""

LOOP_RANK = 6
"""Rank of the kernels of these families that serve every lower rank."""

_MATTERS = {"parallel": 3.0, "kind": 2.0}
"""What it costs to lack a part of a variant, in powers of two of the time, nearly; others count 0.5."""


class Kernels(Protocol):
    """The kernels that lowering may call."""

    def has(self, desc: OpDesc) -> bool:
        """Return whether there is this very kernel."""

    def serve(self, desc: OpDesc, views: tuple[View, ...]) -> Call | None:
        """Return a call that computes what ``desc`` on ``views`` would, or None if no kernel may."""


class Available:
    """Kernels that were built.

    Args:
        descs: Their descriptors.
    """

    def __init__(self, descs: Iterable[OpDesc]) -> None:
        self._exact = {desc.canonical() for desc in descs}
        self._alike: defaultdict[str, list[OpDesc]] = defaultdict(list)
        for desc in descs:
            self._alike[meaning(desc)].append(desc)

    def has(self, desc: OpDesc) -> bool:
        """Return whether there is this very kernel."""
        return desc.canonical() in self._exact

    def serve(self, desc: OpDesc, views: tuple[View, ...]) -> Call | None:
        """Return the call of the kernel that is there, or of the one most like it whose limits allow it."""
        if self.has(desc):
            return desc, views
        fitting = (
            (_distance(desc, other), number, other, seen)
            for number, other in enumerate(self._alike.get(meaning(desc), ()))
            for seen in (_with_rank(other, views),)
            if other.problem([view.dims for view in seen]) is None
        )
        best = min(fitting, default=None, key=lambda found: found[:2])
        return None if best is None else best[2:]


class Unlimited:
    """Stands for kernels that are legal at any extent; remembers which were asked for."""

    def __init__(self) -> None:
        self.descs: dict[OpDesc, None] = {}

    def has(self, desc: OpDesc) -> bool:
        """Return whether the kernel has no limits, so that no rule picks an algorithm that has."""
        return False

    def serve(self, desc: OpDesc, views: tuple[View, ...]) -> Call | None:
        """Return the call of the variant without limits."""
        found = unlimited(desc)
        self.descs[found] = None
        return found, _with_rank(found, views)


def meaning(desc: OpDesc) -> str:
    """Return what a descriptor computes, whatever its variant: equal for kernels that may stand for each other."""
    parts = desc.components()
    ranks = [None if desc.family in LOOPS else len(operand.dims) for operand in desc.operands]
    operands = [[o.name, o.dtype, o.format, rank] for o, rank in zip(desc.operands, ranks, strict=True)]
    return canonical_json([parts["op_types"], desc.family, parts["attrs"], operands, desc.impl_mode, desc.source])


def _distance(wanted: OpDesc, other: OpDesc) -> float:
    """Return how much worse another variant is likely to be: a number to compare, in powers of two of the time."""
    names = {*wanted.variant, *other.variant}
    return sum(_difference(name, wanted.variant.get(name), other.variant.get(name)) for name in sorted(names)) + sum(
        (a.stride != b.stride) + 0.01 * (len(x.dims) != len(y.dims))
        for x, y in zip(wanted.operands, other.operands, strict=True)
        for a, b in zip(x.dims[:1], y.dims[:1], strict=True)
    )


def _difference(name: str, wanted: Any, other: Any) -> float:
    if wanted == other:
        return 0.0
    if any(isinstance(value, (bool, str)) or value is None for value in (wanted, other)):
        lacks = _MATTERS.get(name, 0.5)
        return lacks if wanted else lacks / 4
    return abs(log2(max(wanted, 0.5)) - log2(max(other, 0.5)))


def _with_rank(desc: OpDesc, views: tuple[View, ...]) -> tuple[View, ...]:
    """Return views with dimensions of one element added outside, where the kernel has more dimensions."""
    if desc.family not in LOOPS:
        return views
    rank = len(desc.outputs[0].dims)
    return tuple(View(v.buffer, v.offset, (*v.dims, *((1, 0),) * (rank - len(v.dims)))) for v in views)


# -- variants without limits ------------------------------------------------------------------------------------------

_LEAST: Mapping[str, Mapping[str, Any]] = {
    "conv": {"width": 1, "blocks": 1, "chunk": 0},
    "conv_grouped": {"width": 1},
    "conv_depthwise": {"width": 1},
    "conv_first": {"width": 1, "blocks": 1},
    "elementwise": {"width": 1, "parallel": False},
    "copy": {"kind": "rows", "width": 1, "parallel": False},
    "from_blocked": {"width": 1},
    "gather": {"width": 1},
    "resize": {"width": 1},
    "reduce": {"lanes": 1},
    "arg_reduce": {"lanes": 1},
    "softmax": {"lanes": 1, "row": "heap"},
    "matmul": {"rows": 1},
}
"""What of each family's variant goes with limits, at its least."""

_ONE = ("gather", "resize", "reduce", "arg_reduce", "softmax", "matmul")
"""Families whose least variant needs one element where a larger one needs more."""

_ANY_STRIDE = (*LOOPS, "gather", "to_blocked", "from_blocked")
"""Families that may read and write single elements at any distance."""


def unlimited(desc: OpDesc) -> OpDesc:
    """Return the variant of a kernel that is legal for every extent that its operator can have."""
    family = desc.family
    least = {name: value for name, value in _LEAST.get(family, {}).items() if name in desc.variant}
    if family == "softmax" and desc.attrs["log"]:
        least.pop("row", None)  # a logarithm keeps no row
    if family == "matmul":
        least["columns"] = PANEL if desc.attrs["rhs"] == "panels" else VECTOR
    rank = max(LOOP_RANK, len(desc.outputs[0].dims)) if family in LOOPS else 0

    def opened(operand: Operand) -> Operand:
        dims = [_opened(desc, operand, number) for number in range(len(operand.dims))]
        dims += [Dim()] * (rank - len(dims))
        return replace(operand, dims=tuple(dims))

    return replace(
        desc,
        inputs=tuple(opened(operand) for operand in desc.inputs),
        outputs=tuple(opened(operand) for operand in desc.outputs),
        variant={**desc.variant, **least},
    )


def _opened(desc: OpDesc, operand: Operand, number: int) -> Dim:
    """Return one dimension with the limits of the variant without limits."""
    dim, family = operand.dims[number], desc.family
    if family == "matmul" and operand.name == "rhs" and desc.attrs["rhs"] != "panels":
        return replace(dim, min=VECTOR) if number == 0 else dim  # K of a staged operand keeps its limit
    if dim.min > 1:
        dim = replace(dim, min=1 if family in _ONE else 0)
    if family in ("conv", "matmul") and dim.multiple > 1:
        dim = replace(dim, multiple=1)
    if family == "conv" and operand.name == "x" and number > 0:
        dim = replace(dim, stride=FREE)
    if family == "softmax":
        dim = replace(dim, max=FREE)
    single = number == 0 or family in LOOPS
    if family in _ANY_STRIDE and single and operand.format != "NC1HWC0":
        dim = replace(dim, stride=FREE)
    return dim


def conversions(threads: int) -> tuple[OpDesc, ...]:
    """Return the copies and changes of layout without limits; with them any node can be left to the host."""
    element = View(0, 0, ((1, 1),))
    image, odd = View(0, 0, ((1, 1), (1, 1), (BLOCK, 1))), View(0, 0, ((1, 1), (1, 1), (1, 1)))
    blocked = View(0, 0, ((BLOCK, 1), (1, BLOCK), (1, BLOCK), (1, BLOCK)))
    calls = [copy((element, element), dtype, threads) for dtype in ("uint8", "uint16", "uint32", "uint64")]
    calls += [to_blocked((plain, blocked), "float32", threads) for plain in (image, odd)]
    calls.append(from_blocked((blocked, image), "float32", threads))
    return tuple(unlimited(desc) for desc, _ in calls)
