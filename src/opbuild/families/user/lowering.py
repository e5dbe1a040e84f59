"""Lowering of operators that users define: elementwise ones as expressions are, whole definitions on dense values."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.errors import UnsupportedOperatorError
from opbuild.families.user.family import FAMILY
from opbuild.graph.elementwise import elementwise_of
from opbuild.graph.extents import is_one
from opbuild.graph.types import Node
from opbuild.graph.user_operators import find
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import ASKED, ask, serves
from opbuild.program import View


@serves("lowering.UserOperator")
def lower_user(lowering: Lowering, node: Node) -> None:
    """Emit the call of an operator that a user defined.

    Raises:
        UnsupportedOperatorError: If the node has absent inputs, several outputs or attributes that are no plain values.
    """
    operator = find(node.domain, node.op_type)
    assert operator is not None  # noqa: S101 - lowering asks for those alone
    if not all(node.inputs) or len(node.outputs) != 1:
        raise UnsupportedOperatorError(
            f"{node.op_type} node {node.name!r}: a user-defined operator has all its inputs and one output"
        )
    chain = elementwise_of(node, lowering.graph.types, lowering.graph.constants)
    if chain is not None:
        ask(lowering, (ASKED, "Elementwise"), node, chain)
        return
    operands = [lowering.dense(name) for name in node.inputs]
    target = lowering.new_plain(node.outputs[0])
    if not lowering.type(node.outputs[0]).size:
        return
    dtypes = [lowering.type(name).dtype for name in (*node.inputs, node.outputs[0])]
    attrs = {
        "domain": operator.domain,
        "function": operator.function,
        "schedule": operator.schedule,
        "arguments": {name: _plain(node, name, value) for name, value in sorted(node.attrs.items())},
    }

    def make(views: tuple[View, ...]) -> tuple[OpDesc, tuple[View, ...]]:
        described = tuple(
            Operand("out" if number == len(node.inputs) else f"x{number}", dtype, _dims(view))
            for number, (view, dtype) in enumerate(zip(views, dtypes, strict=True))
        )
        return (
            FAMILY.desc((operator.op_type,), described[:-1], described[-1:], attrs, {}, source=operator.source),
            views,
        )

    lowering.emit(make, (*operands, target), node)


def _dims(view: View) -> tuple[Dim, ...]:
    """Return free extents; data is dense, so the innermost stride is 1 wherever it has a meaning."""
    return tuple(Dim(stride=1 if index == 0 and is_one(stride) else -1) for index, (_, stride) in enumerate(view.dims))


def _plain(node: Node, name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (int, float, str, tuple, list)):
        return value
    raise UnsupportedOperatorError(
        f"{node.op_type} node {node.name!r}: attribute {name} is a {type(value).__name__}",
        "a user-defined operator has numbers and strings as attributes",
    )
