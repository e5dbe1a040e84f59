"""Nodes that no kernel serves: which of a program there are, and whether an offline model can have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from opbuild.errors import UnsupportedOperatorError
from opbuild.graph.types import Node
from opbuild.program import HostCall, Program


class HostNode(NamedTuple):
    """A node that runs without a kernel.

    Attributes:
        node: The node.
        why: Why no kernel serves it.
    """

    node: Node
    why: str

    @property
    def portable(self) -> bool:
        """Whether it runs where the onnx package is not installed."""
        from opbuild.backend.host.evaluate import is_native

        return is_native(self.node)


def host_nodes(program: Program) -> dict[str, HostNode]:
    """Return the nodes of a program that no kernel serves, by name."""
    found: dict[str, HostNode] = {}
    for call in program.calls:
        if isinstance(call, HostCall):
            why = str(program.notes.get(call.node.name, f"no kernel for {call.node.op_type}"))
            found[call.node.name] = HostNode(call.node, why)
    return found


def refuse_foreign(nodes: Iterable[HostNode]) -> None:
    """Refuse nodes that an offline model can not have.

    Raises:
        UnsupportedOperatorError: If one runs only where the onnx package is; the message names all of them.
    """
    refused = [each for each in nodes if not each.portable]
    if refused:
        names = ", ".join(sorted({f"{each.node.op_type} ({each.node.name})" for each in refused}))
        raise UnsupportedOperatorError(
            f"these operators have no kernel and run only where the onnx package is installed: {names}",
            "an offline model can not have them: use opbuild.compile, or replace them in the model",
            command="an offline model can not have them: use opbuild run or build, or replace them in the model",
        )


def servable(program: Program) -> Program:
    """Return a program; refuse it if a node runs only where the onnx package is."""
    refuse_foreign(host_nodes(program).values())
    return program
