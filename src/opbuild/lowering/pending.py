"""Calls that rules have emitted, before it is known where their operands lie."""

from __future__ import annotations

from collections.abc import Callable

from opbuild.graph.types import Node
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.operands import OperandRef, Plain
from opbuild.platform.records import dataclass
from opbuild.program import View

Made = tuple[OpDesc, tuple[View, ...]]
"""A call of a kernel."""

MakeCall = Callable[[tuple[View, ...]], Made]
"""Makes the descriptor once the views are known; it may collapse or reorder dimensions of the views."""


@dataclass(frozen=True, eq=False)
class Pending:
    """A call of a kernel: its descriptor or what makes it, its operands, and the nodes that it computes."""

    make: MakeCall | OpDesc
    operands: tuple[OperandRef, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class PendingHost:
    """A call of the host backend: a node, and where what it has lies; or what refuses indices (``graph.indices``)."""

    node: Node
    inputs: tuple[Plain | None, ...]
    outputs: tuple[Plain | None, ...]
