"""WithoutLimits: lowering that calls of each operator the variant that is legal at any extent."""

from __future__ import annotations

from opbuild.families.catalogue import find
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Chooser
from opbuild.lowering.operands import Made
from opbuild.program import View


class WithoutLimits(Chooser):
    """Takes kernels that are legal at any extent; remembers which."""

    def __init__(self) -> None:
        self.descs: dict[OpDesc, None] = {}

    def serve(self, desc: OpDesc, views: tuple[View, ...]) -> Made:
        """Return the call of the variant without limits."""
        found = find(desc.family).without_limits(desc)
        self.descs[found] = None
        if find(desc.family).any_rank:
            rank = len(found.outputs[0].dims)
            views = tuple(View(v.buffer, v.offset, (*v.dims, *((1, 0),) * (rank - len(v.dims)))) for v in views)
        return found, views
