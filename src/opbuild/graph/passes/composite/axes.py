"""Operators whose axis is given to the call: computed along every axis, and chosen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from opbuild.graph.passes.composite import REWRITES, signal
from opbuild.graph.passes.indices import in_range
from opbuild.graph.passes.rewriter import KeptError, PassBuilder

MOST_AXES = 4
"""Axes at most: each costs a computation of which all but one are thrown away."""


@REWRITES.register("CumProd", "CumSum")
def _running(of: PassBuilder) -> None:
    """CumSum and CumProd."""
    axis = of.input(1)
    rank = len(of.input(0).shape)

    def along(x: str, number: int, output: str) -> str:
        return of(of.node.op_type, x, of.integers(number), output=output, **of.node.attrs)

    _each(of, axis, rank, along)


@REWRITES.register("DFT")
def _transform(of: PassBuilder) -> None:
    """DFT; the last axis holds the parts of a number."""
    if not of.has(2) or of.input(2) in of.constants:
        signal.transform(of)
        return
    x, result = of.input(0).type, of.types[of.outputs[0]]
    if x.dtype != "float32" or not x.size or result.shape[:-1] != x.shape[:-1] or of.has(1):
        raise KeptError

    def along(x: str, number: int, output: str) -> str:
        name = output or of.scope.fresh(f"{of.name}/DFT")
        of.types[name] = result
        inputs = (x, "", of.integers(number))
        signal.transform(of.scope.at(of.node.with_(inputs=inputs, outputs=(name,))))
        return name

    _each(of, of.input(2), len(x.shape) - 1, along)


def _each(of: PassBuilder, axis: str, count: int, along: Callable[[str, int, str], str]) -> None:
    """Append the computation along each axis, and the choice of one by what ``axis`` is; a negative one counts back."""
    if axis in of.constants or not 1 <= count <= MOST_AXES:
        raise KeptError
    x = of.input(0)
    shape = of.types[x].shape
    rank = len(shape)
    place = of.reshape(axis, ())
    if of.types[place].dtype != "int64":
        place = of("Cast", place, to="int64")
    if count < rank:
        is_negative = of("Less", place, of.constant(0, "int64"))
        place = of("Where", is_negative, of("Add", place, of.integers(rank)), place)
        place = in_range(of, place, (count,))
    if count == 1:  # what nothing is chosen by would not be looked at
        along(of("Gather", of.reshape(x, (1, *shape)), place, axis=0), 0, of.outputs[0])
        return
    found = along(x, 0, "")
    for number in range(1, count):
        both = of.constant(np.array([number, number - rank], np.int64))
        is_one = of("Equal", place, both)
        ends = [of("Gather", is_one, of.integers(index), axis=0) for index in (0, 1)]
        chosen = of("Or", ends[0], ends[1])
        found = of("Where", chosen, along(x, number, ""), found, output=of.outputs[0] if number == count - 1 else "")
