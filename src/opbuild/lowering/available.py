"""The kernels that lowering may call, and which of them compute the same.

Lowering picks for each call the variant that is fastest for its extents. A kernel of another variant computes the same
wherever its limits (``OpDesc.problem``) allow, and each family has a variant without limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from opbuild.families.catalogue import find
from opbuild.kernel.opdesc import OpDesc
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

    def serve(self, desc: OpDesc, views: tuple[View, ...]) -> Call:
        """Return a call that computes what ``desc`` on ``views`` would."""

    def choose(self, site: tuple[str, ...], function: Callable[..., V], arguments: tuple[Any, ...]) -> V:
        """Return the variant that lowering is to ask for: that of ``function``, a family's, or another of its own.

        Args:
            site: The nodes that are lowered.
            function: A family's ``choose``.
            arguments: What it is called with.
        """
        return function(*arguments)


def meaning(desc: OpDesc) -> str:
    """Return what a descriptor computes, whatever its variant: equal for kernels that may stand for each other."""
    parts, any_rank = desc.components(), find(desc.family).any_rank
    ranks = [None if any_rank else len(operand.dims) for operand in desc.operands]
    operands = [[o.name, o.dtype, o.format, rank] for o, rank in zip(desc.operands, ranks, strict=True)]
    return canonical_json([parts["op_types"], desc.family, parts["attrs"], operands, desc.impl_mode, desc.source])
