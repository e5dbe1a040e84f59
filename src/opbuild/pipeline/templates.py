"""Lowering a model with symbolic extents, at the size at hand, and the kernels that compute it at any size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from opbuild.families.catalogue import find
from opbuild.graph.extents import Extent, Extents
from opbuild.graph.types import Graph
from opbuild.kernel.level import Level
from opbuild.kernel.opdesc import FREE, OpDesc
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.lowering.recording import Recording
from opbuild.pipeline.loaded import with_rank
from opbuild.program import KernelCall, Program, Symbols
from opbuild.runtime.binding import Shapes


class OpenShapes(NamedTuple):
    """Shapes of inputs with symbolic extents.

    Attributes:
        extents: What they are over, and the conditions that are found.
        shapes: The shapes.
        places: Where each symbol stands: input and dimension.
    """

    extents: Extents
    shapes: Shapes
    places: tuple[tuple[int, int], ...]


def open_shapes(declared: Sequence[Sequence[int]], shapes: Shapes) -> OpenShapes:
    """Return shapes whose open extents are symbolic.

    Extents that are equal now and stand in the same place of several inputs, as batches and lengths do, are taken as
    one; that they are equal is a condition.

    Args:
        declared: The shapes of the inputs, ``FREE`` where they are open.
        shapes: The size at hand.
    """
    extents = Extents()
    first: dict[tuple[int, int], Extent] = {}
    places: list[tuple[int, int]] = []
    opened = []
    for index, (free, shape) in enumerate(zip(declared, shapes, strict=True)):
        row: list[Any] = list(shape)
        for axis, (declared_extent, extent) in enumerate(zip(free, shape, strict=True)):
            if declared_extent != FREE:
                continue
            if (axis, extent) not in first:
                first[axis, extent] = extents.input(extent)
                places.append((index, axis))
            row[axis] = first[axis, extent]
        opened.append(tuple(row))
    return OpenShapes(extents, tuple(opened), tuple(places))


def lower_open(graph: Graph, opened: OpenShapes, level: Level, options: Options) -> Program:
    """Return a program with symbolic extents.

    Args:
        graph: The optimized graph.
        opened: Its inputs' shapes; behind them other numbers that decide.
        level: The level that it is for.
        options: How it is lowered.
    """
    recording = Recording()
    program = lower(graph, level, Options(options.impl_mode, options.impl_types, recording))
    values = opened.shapes[len(program.inputs) :]
    return replace(program, symbols=Symbols(opened.extents, opened.places, values, recording.questions))


def kernels_of_any_size(program: Program, alike: Callable[[OpDesc], Sequence[OpDesc]]) -> dict[OpDesc, tuple[str, ...]]:
    """Return kernels that compute a program at any size, with the nodes that need them.

    Args:
        program: It has symbols.
        alike: Returns kernels that compute what another one does, the best first: that one itself if it is there or
            wanted. The first that may run at all sizes serves; if none may, the one without limits.
    """
    found: defaultdict[OpDesc, dict[str, None]] = defaultdict(dict)
    for call in program.calls:
        if isinstance(call, KernelCall):
            served = (each for each in alike(call.desc) if _runs_always(each, call, program))
            chosen = next(served, None) or find(call.desc.family).without_limits(call.desc)
            found[chosen].update(dict.fromkeys(call.nodes))
    return {desc: tuple(nodes) for desc, nodes in found.items()}


def _runs_always(desc: OpDesc, call: KernelCall, program: Program) -> bool:
    dims = with_rank(desc, [view.dims for view in call.views])
    symbols = program.symbols
    return symbols is not None and bool(symbols.extents.always(lambda: desc.problem(dims) is None))
