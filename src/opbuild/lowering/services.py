"""What families ask of each other while they lower: by what it is, not by who does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opbuild.families.family import Choose
from opbuild.graph.elementwise import Elementwise
from opbuild.graph.types import Node
from opbuild.kernel.opdesc import HIGH_PERFORMANCE
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import ASKED, ask, call_of
from opbuild.lowering.operands import Plain
from opbuild.lowering.pending import Made
from opbuild.operations.expression import Expression
from opbuild.program import View


def emit_gather(
    lowering: Lowering, node: Node, operands: tuple[Plain, Plain, Plain], attrs: Mapping[str, object], op_type: str
) -> None:
    """Emit a gather; operands are the data, the indices and the output, with the dimensions that the kernel has."""
    ask(lowering, (ASKED, "Gather"), node, operands, attrs, op_type)


def pool_planes(lowering: Lowering, node: Node, kind: str) -> None:
    """Emit the pool of whole planes, ``max`` or ``average``, of a node's first input."""
    ask(lowering, (ASKED, "PlanePool"), node, kind)


def emit_elementwise(lowering: Lowering, node: Node, chain: Elementwise) -> None:
    """Emit the call of an elementwise chain."""
    ask(lowering, (ASKED, "Elementwise"), node, chain)


def elementwise(
    views: Sequence[View],
    expression: Expression,
    dtypes: Sequence[str],
    choose: Choose,
    impl_mode: str = HIGH_PERFORMANCE,
) -> Made:
    """Return the call of an expression over strided operands of equal extents.

    Args:
        views: The operands and the output.
        expression: Over the operands, in canonical form.
        dtypes: The types of the operands and of the output.
        choose: Chooses the variant.
        impl_mode: As in ``OpDesc``.
    """
    made: Made = call_of("Expression")(views, expression, dtypes, choose, impl_mode)
    return made
