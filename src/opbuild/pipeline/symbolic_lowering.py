"""Lowering a model with symbolic extents, at the size at hand, and the kernels that compute it at any size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from opbuild.families.catalogue import find, with_rank
from opbuild.graph.extents import Extents, example_value
from opbuild.graph.types import Graph
from opbuild.kernel.opdesc import FREE, OpDesc
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.lowering.recording import ChoiceRecording
from opbuild.lowering.tuned import NoTuning, Tuned
from opbuild.platform.background import without_frames
from opbuild.platform.records import NamedTuple, replace
from opbuild.program import KernelCall, Program, ProgramSymbols
from opbuild.runtime.binding import Shapes
from opbuild.target.level import Level

T = TypeVar("T")


class SymbolicShapes(NamedTuple):
    """Shapes of inputs with symbolic extents.

    Attributes:
        extents: What they are over, and the conditions that are found.
        shapes: The shapes.
        places: Where each symbol stands: input and dimension.
    """

    extents: Extents
    shapes: Shapes
    places: tuple[tuple[int, int], ...]

    def lower(self, graph: Graph, level: Level, options: Options) -> Program:
        """Return the program of an optimized graph whose inputs have these shapes.

        Args:
            graph: The graph; shapes behind those of its inputs are other numbers that decide.
            level: The level that it is for.
            options: How it is lowered.
        """
        recording = ChoiceRecording(options.chooser or Tuned(NoTuning()))
        program = lower(graph, level, replace(options, chooser=recording))
        values = self.shapes[len(program.inputs) :]
        return replace(program, symbols=ProgramSymbols(self.extents, self.places, values, recording.choices))


def symbolic_shapes(declared: Sequence[Sequence[int]], shapes: Shapes) -> SymbolicShapes:
    """Return the shapes of inputs at the size at hand, with symbolic extents where they are declared ``FREE``.

    Each is one of its own: that some are equal, as batches and lengths are, is a condition where it has to be so.
    """
    extents = Extents()
    places: list[tuple[int, int]] = []
    opened = []
    for index, (free, shape) in enumerate(zip(declared, shapes, strict=True)):
        row: list[Any] = list(shape)
        for axis, (declared_extent, extent) in enumerate(zip(free, shape, strict=True)):
            if declared_extent != FREE:
                continue
            row[axis] = extents.input(extent)
            places.append((index, axis))
        opened.append(tuple(row))
    return SymbolicShapes(extents, tuple(opened), tuple(places))


def symbolic_first(symbolic: Callable[[], T | None], fixed: Callable[[BaseException | None], T]) -> T:
    """Return the result with symbolic extents; where that fails, or gives nothing, the result at fixed sizes.

    Args:
        symbolic: Makes the one; it may raise whatever does not know symbolic extents raises.
        fixed: Makes the other, given what the former raised; what it raises itself is raised.
    """
    problem = None
    try:
        found = symbolic()
        if found is not None:
            return found
    except Exception as error:
        problem = without_frames(error)
    return fixed(problem)


def kernels_for_all_sizes(
    program: Program, alike: Callable[[OpDesc], Sequence[OpDesc]]
) -> dict[OpDesc, tuple[str, ...]]:
    """Return kernels that compute a program at any size, with the nodes that need them.

    Args:
        program: It has symbols.
        alike: Returns kernels that compute what another one does, the best first: that one itself if it is there or
            wanted. The first that may run at all sizes serves; if none may, the first that may at the size at hand, and
            the one without limits.
    """
    found: defaultdict[OpDesc, dict[str, None]] = defaultdict(dict)
    for call in program.calls:
        if isinstance(call, KernelCall):
            for chosen in _serving(call, alike(call.desc), program):
                found[chosen].update(dict.fromkeys(call.nodes))
    return {desc: tuple(nodes) for desc, nodes in found.items()}


def _serving(call: KernelCall, alike: Sequence[OpDesc], program: Program) -> Iterator[OpDesc]:
    always = next((each for each in alike if _runs_always(each, call, program)), None)
    if always is not None:
        yield always
        return
    dims = [
        tuple((example_value(extent), example_value(stride)) for extent, stride in view.dims) for view in call.views
    ]
    is_run = call.repeated is None or example_value(call.repeated.count) > 0
    best = (each for each in alike if not is_run or each.problem(with_rank(each, dims)) is None)
    yield from islice(best, 1)
    yield find(call.desc.family).without_limits(call.desc)


def _runs_always(desc: OpDesc, call: KernelCall, program: Program) -> bool:
    dims = with_rank(desc, [view.dims for view in call.views])
    symbols = program.symbols
    return symbols is not None and bool(symbols.extents.always(lambda: desc.problem(dims) is None))
