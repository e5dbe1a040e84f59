"""Lowering to kernels that are there already, where none can be compiled.

Lowering picks for each call the variant that is fastest for its extents. A kernel of another variant computes the same
wherever its limits (``OpDesc.problem``) allow, and each family has a variant without limits. So a file that holds that
variant of every operator serves every size; with the variants that sizes would pick (``alternatives``) it is fast too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from opbuild.families.blocked import BLOCK
from opbuild.families.catalogue import find
from opbuild.families.family import for_machine
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.transfer import copy, from_blocked, to_blocked
from opbuild.program import View
from opbuild.text.canonical import canonical_json

V = TypeVar("V")

Call = tuple[OpDesc, tuple[View, ...]]


class Kernels(Protocol):
    """The kernels that lowering may call.

    Attributes:
        is_elsewhere: Whether what is asked for is run at other sizes than that at hand.
    """

    is_elsewhere: bool = False

    def has(self, desc: OpDesc) -> bool:
        """Return whether there is this very kernel."""

    def serve(self, desc: OpDesc, views: tuple[View, ...]) -> Call | None:
        """Return a call that computes what ``desc`` on ``views`` would, or None if no kernel may."""

    def choose(self, site: tuple[str, ...], function: Callable[..., V], arguments: tuple[Any, ...]) -> V:
        """Return the variant that lowering is to ask for: that of ``function``, a family's, or another of its own.

        Args:
            site: The nodes that are lowered.
            function: A family's ``choose``.
            arguments: What it is called with.
        """
        return function(*arguments)


class Available(Kernels):
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


class Unlimited(Kernels):
    """Stands for kernels that are legal at any extent; remembers which were asked for."""

    def __init__(self) -> None:
        self.descs: dict[OpDesc, None] = {}
        self._found: dict[OpDesc, OpDesc] = {}

    def has(self, desc: OpDesc) -> bool:
        """Return whether the kernel has no limits, so that no rule picks an algorithm that has."""
        return False

    def serve(self, desc: OpDesc, views: tuple[View, ...]) -> Call | None:
        """Return the call of the variant without limits."""
        found = self._found.get(desc)
        if found is None:
            found = self._found[desc] = find(desc.family).without_limits(desc)
            self.descs[found] = None
        return found, _with_rank(found, views)


def meaning(desc: OpDesc) -> str:
    """Return what a descriptor computes, whatever its variant: equal for kernels that may stand for each other."""
    parts, any_rank = desc.components(), find(desc.family).any_rank
    ranks = [None if any_rank else len(operand.dims) for operand in desc.operands]
    operands = [[o.name, o.dtype, o.format, rank] for o, rank in zip(desc.operands, ranks, strict=True)]
    return canonical_json([parts["op_types"], desc.family, parts["attrs"], operands, desc.impl_mode, desc.source])


def form(desc: OpDesc) -> str:
    """Return what a descriptor computes and how its operands lie, whatever its variant and its limits."""
    lying = [[(dim.extent, dim.stride) for dim in operand.dims] for operand in desc.operands]
    return canonical_json([meaning(desc), lying])


def _distance(wanted: OpDesc, other: OpDesc) -> float:
    """Return how much worse another variant is likely to be: a number to compare, in powers of two of the time."""
    return find(wanted.family).distance(wanted, other) + sum(
        (a.stride != b.stride) + 0.01 * (len(x.dims) != len(y.dims))
        for x, y in zip(wanted.operands, other.operands, strict=True)
        for a, b in zip(x.dims[:1], y.dims[:1], strict=True)
    )


def _with_rank(desc: OpDesc, views: tuple[View, ...]) -> tuple[View, ...]:
    """Return views with dimensions of one element added outside, where the kernel has more dimensions."""
    if not find(desc.family).any_rank:
        return views
    rank = len(desc.outputs[0].dims)
    return tuple(View(v.buffer, v.offset, (*v.dims, *((1, 0),) * (rank - len(v.dims)))) for v in views)


def conversions(machine: Machine) -> tuple[OpDesc, ...]:
    """Return the copies and changes of layout without limits; with them any node can be left to the host."""
    element = View(0, 0, ((1, 1),))
    image, odd = View(0, 0, ((1, 1), (1, 1), (BLOCK, 1))), View(0, 0, ((1, 1), (1, 1), (1, 1)))
    blocked = View(0, 0, ((BLOCK, 1), (1, BLOCK), (1, BLOCK), (1, BLOCK)))
    choose = for_machine(machine)
    calls = [copy((element, element), dtype, choose) for dtype in ("uint8", "uint16", "uint32", "uint64")]
    calls += [to_blocked((plain, blocked), "float32", choose) for plain in (image, odd)]
    calls.append(from_blocked((blocked, image), "float32", choose))
    return tuple(find(desc.family).without_limits(desc) for desc, _ in calls)
