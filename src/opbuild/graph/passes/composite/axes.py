"""Operators whose axis is given to the call: computed along every axis, and chosen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from opbuild.graph.passes.composite import signal
from opbuild.graph.passes.composite.rewrite import KeptError, Rewrite, has_input, integers, reshaped
from opbuild.graph.passes.indices import in_range
from opbuild.graph.passes.rewriter import Rewriter
from opbuild.graph.types import Node

MOST_AXES = 4
"""Axes at most: each costs a computation of which all but one are thrown away."""


def _running(to: Rewriter, node: Node) -> None:
    """CumSum and CumProd."""
    axis = node.inputs[1]
    rank = len(to.types[node.inputs[0]].shape)

    def along(x: str, number: int, output: str) -> str:
        return to.add(node, node.op_type, (x, integers(to, node, number)), output, **node.attrs)

    _each(to, node, axis, rank, along)


def _transform(to: Rewriter, node: Node) -> None:
    """DFT; the last axis holds the parts of a number."""
    if not has_input(node, 2) or node.inputs[2] in to.constants:
        signal.transform(to, node)
        return
    x, result = to.types[node.inputs[0]], to.types[node.outputs[0]]
    if x.dtype != "float32" or not x.size or result.shape[:-1] != x.shape[:-1] or has_input(node, 1):
        raise KeptError

    def along(x: str, number: int, output: str) -> str:
        name = output or to.fresh(f"{node.name}/DFT")
        to.types[name] = result
        inputs = (x, "", integers(to, node, number))
        signal.transform(to, node.with_(inputs=inputs, outputs=(name,)))
        return name

    _each(to, node, node.inputs[2], len(x.shape) - 1, along)


def _each(to: Rewriter, node: Node, axis: str, count: int, along: Callable[[str, int, str], str]) -> None:
    """Append the computation along each axis, and the choice of one by what ``axis`` is; a negative one counts back."""
    if axis in to.constants or not 1 <= count <= MOST_AXES:
        raise KeptError
    x = node.inputs[0]
    shape = to.types[x].shape
    rank = len(shape)
    place = reshaped(to, node, axis, ())
    if to.types[place].dtype != "int64":
        place = to.add(node, "Cast", (place,), to="int64")
    if count < rank:
        is_negative = to.add(node, "Less", (place, integers(to, node, 0)))
        place = to.add(node, "Where", (is_negative, to.add(node, "Add", (place, integers(to, node, rank))), place))
        place = in_range(to, node, place, (count,))
    if count == 1:  # what nothing is chosen by would not be looked at
        along(to.add(node, "Gather", (reshaped(to, node, x, (1, *shape)), place), axis=0), 0, node.outputs[0])
        return
    found = along(x, 0, "")
    for number in range(1, count):
        both = to.constant(f"{node.name}/axis", np.array([number, number - rank], np.int64))
        is_one = to.add(node, "Equal", (place, both))
        ends = [to.add(node, "Gather", (is_one, integers(to, node, index)), axis=0) for index in (0, 1)]
        chosen = to.add(node, "Or", (ends[0], ends[1]))
        found = to.add(
            node, "Where", (chosen, along(x, number, ""), found), node.outputs[0] if number == count - 1 else ""
        )


REWRITES: dict[str, Rewrite] = {**dict.fromkeys(("CumProd", "CumSum"), _running), "DFT": _transform}
