"""Graphs lowered with symbolic extents at a size, as a session does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opbuild.graph.types import Graph
from opbuild.lowering.context import Options
from opbuild.pipeline import symbolic_lowering
from opbuild.program import Program
from opbuild.runtime.binding import Shapes
from opbuild.target.level import Level


def lower_open(
    graph: Callable[[Shapes], Graph], declared: Sequence[Sequence[int]], shapes: Shapes, level: Level, options: Options
) -> Program:
    """Return a program with symbolic extents.

    Args:
        graph: Returns the optimized graph for shapes with symbolic extents.
        declared: The shapes of the inputs, -1 where extents are symbolic; behind them other numbers that decide.
        shapes: The size at which it is lowered.
        level: The level that it is for.
        options: How it is lowered.
    """
    opened = symbolic_lowering.symbolic_shapes(declared, shapes)
    return opened.lower(graph(opened.shapes), level, options)
