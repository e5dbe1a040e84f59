"""Steps that the upgrades of many operators share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.graph.graph_builder import Scope
from opbuild.graph.types import Node

Upgrade = Callable[[Node, Scope], Sequence[Node]]


def replaced(node: Node, drop: tuple[str, ...] = (), inputs: tuple[str, ...] | None = None, **attrs: Any) -> Node:
    """Return a node without some attributes, with others set and perhaps with other inputs."""
    kept = {name: value for name, value in node.attrs.items() if name not in drop}
    return node.with_(attrs={**kept, **attrs}, inputs=node.inputs if inputs is None else inputs, proto=None)


def changed(*drop: str, op_type: str = "", outputs: int | None = None, **attrs: Any) -> Upgrade:
    """Leave attributes out and set others, perhaps of another operator or with the first outputs only."""

    def step(node: Node, scope: Scope) -> Sequence[Node]:
        return (replaced(node, drop, **attrs).with_(op_type=op_type or node.op_type, outputs=node.outputs[:outputs]),)

    return step


def moved(
    node: Node, scope: Scope, names: Sequence[str], dtype: str = "int64", shape: tuple[int, ...] = (-1,)
) -> Sequence[Node]:
    """Move attributes to further inputs; an absent one becomes an absent input."""
    attrs = node.attrs
    added = [scope.constant(np.asarray(attrs[name], dtype).reshape(shape)) if name in attrs else "" for name in names]
    while added and not added[-1]:
        added.pop()
    return (replaced(node, tuple(names), (*node.inputs, *added)),)


def ints_to_inputs(*names: str) -> Upgrade:
    """Move integer list attributes to int64 inputs."""
    return lambda node, scope: moved(node, scope, names)
