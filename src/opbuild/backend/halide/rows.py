"""Schedules along rows: one element at a time, reductions in vector lanes, and loops divided among tasks.

A loop that adds one element after another to one sum cannot be vectorized as it stands, and rounds worse. Here
four vectors of partial results are kept, one for each position within a chunk of as many elements, then folded to
one vector of them, which take up the elements beyond the last whole chunk, and are combined at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, variables
from opbuild.backend.halide.division import share
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

RANGES = 4
"""Ranges for each task that a call asks for: whose core is slower leaves a part of its share to the others."""

LEAST_ROW = 4096
"""Elements of the shortest range of a row."""

MOST_ALONE = 2
"""Dimensions of outputs whose loops have a second copy for one task: for six it is a third of compiling."""

Loop = tuple[Any, Any, int]
"""A loop's variable, its extent (an expression), and the least length of its ranges."""


def divide_loops(function: Any, loops: Sequence[Loop], tasks: Any) -> None:
    """Divide the two innermost of some loops into ranges, ``RANGES`` for each task: one range if there is one task.

    The outer one is divided first; where it has fewer steps than ranges are wanted, so is the inner one. What else is
    scheduled of the function must be scheduled before.

    Args:
        function: The function to schedule.
        loops: The outermost loops, outermost last; their names stay those of the inner loops.
        tasks: How many tasks are wanted, an expression.
    """
    wanted = hl.select(tasks == 1, 1, RANGES * tasks)
    ranges = []
    for number, (loop, extent, least) in reversed(list(enumerate(loops[:2]))):
        ranges.append(hl.Var(f"range{number}"))
        length = share(extent, wanted)
        function.split(
            loop, ranges[-1], loop, hl.max(least, length) if least > 1 else length, hl.TailStrategy.GuardWithIf
        )
        wanted = wanted // hl.clamp(extent, 1, wanted)
    task, *outer = reversed(ranges)
    function.reorder(*(loop for loop, _, _ in loops), task, *outer)
    for number, loop in enumerate(outer):
        function.fuse(task, loop, task := hl.Var(f"task{number}"))
    # Compiling takes 5 to 15% less without copies of loops for their ends, and ranges are long.
    function.parallel(task).never_partition_all()


def alone(function: Any, tasks: Any) -> None:
    """Give a function a way of its own for one task, as it is scheduled so far, without parallel loop.

    A parallel loop of one task costs 10 to 35 ns, as much as whole calls on a few hundred elements. The second copy of
    the code takes 5 to 50 ms to compile: not worth it where the code is large.
    """
    function.specialize(tasks == 1)


def schedule(definition: Definition, desc: OpDesc, _machine: Machine) -> None:
    """Vectorise the innermost loop by ``variant``, ``width``, and divide the two outermost ones among the tasks.

    The last vector of a row overlaps the one before it, which is right because no output is read. There are at least
    ``width`` elements in a row; a width of 1 leaves the loop as it is. What has more than two dimensions is large code.
    """
    function, names = definition.outputs[0], list(definition.variables.values())
    width = int(desc.variant["width"])
    extents = [function.output_buffer().dim(index).extent() for index in range(len(names))]
    if width > 1:
        inner = hl.Var("inner")
        function.split(names[0], names[0], inner, width, hl.TailStrategy.ShiftInwards).vectorize(inner)
    row = (names[0], (extents[0] + width - 1) // width, LEAST_ROW // width)
    outer = [(name, extent, 1) for name, extent in zip(names[1:], extents[1:], strict=True)]
    if len(names) <= MOST_ALONE:
        alone(function, definition.tasks)
    divide_loops(function, [row, *outer][-2:], definition.tasks)


VECTOR = 16
"""Elements of a vector of float32, for machines of which nothing better was measured."""

VECTORS = 4
"""Vectors of partial results, so that four additions are under way at once."""


@dataclass(frozen=True)
class LaneReduction:
    """A reduction and what its schedule needs.

    Attributes:
        total: The result, a function of the variables that are kept.
        partial: The results of ``VECTORS`` vectors over whole chunks, a function of the lane and of these variables.
        folded: The results of the lanes of one vector over everything.
        chunks: Domain over ``(chunk, outer reduced...)`` of ``partial``'s update.
        tail: Domain over ``(element, outer reduced...)`` of ``folded``'s update.
        across: Domain over the folded lanes.
        vector: Elements of a vector.
    """

    total: Any
    partial: Any
    folded: Any
    chunks: Any
    tail: Any
    across: Any
    vector: int


def reduce_lanes(
    name: str,
    term: Callable[..., Any],
    extents: Sequence[Any],
    kept: Sequence[Any],
    combine: Callable[[Any, Any], Any],
    identity: Any,
    vector: int = VECTOR,
) -> LaneReduction:
    """Return the reduction of ``term`` over its first indices.

    Args:
        name: Prefix of the functions' names.
        term: What is reduced: called with the reduced indices, innermost first.
        extents: Extent of each reduced index; the first one is cut into chunks.
        kept: Variables that stay, at least one, in scope in ``term``.
        combine: Combines two results; associative and commutative.
        identity: What combining starts from.
        vector: Elements of a vector.
    """
    lanes = VECTORS * vector
    lane = hl.Var(f"{name}_lane")
    partial, folded, total = (hl.Func(f"{name}_{part}") for part in ("partial", "folded", "total"))
    inner, *outer = extents
    around = [(0, extent) for extent in outer]
    chunks = hl.RDom([(0, inner // lanes), *around], f"{name}_chunks")
    tail = hl.RDom([(0, inner % lanes), *around], f"{name}_tail")
    across = hl.RDom([(0, vector)], f"{name}_across")

    def value(function: Any, *index: Any) -> Any:
        # A reference to a function is not yet an expression: select() of references would be a tuple.
        return hl.Expr(function[(*index, *kept)])

    partial[(lane, *kept)] = identity
    indices = [chunks[axis] for axis in range(len(extents))]
    element = term(indices[0] * lanes + lane, *indices[1:])
    partial[(lane, *kept)] = combine(value(partial, lane), element)

    folded[(lane, *kept)] = reduce(combine, [value(partial, lane + start) for start in range(0, lanes, vector)])
    indices = [tail[axis] for axis in range(len(extents))]
    element = term(inner // lanes * lanes + indices[0], *indices[1:])
    folded[(indices[0] % vector, *kept)] = combine(value(folded, indices[0] % vector), element)

    total[tuple(kept)] = identity
    total[tuple(kept)] = combine(value(total), value(folded, across.x))
    return LaneReduction(total, partial, folded, chunks, tail, across, vector)


def schedule_lanes(reduction: LaneReduction, consumer: Any, at: Any, tree: bool = True) -> None:
    """Compute a reduction inside the loop ``at`` of ``consumer``.

    Args:
        reduction: What is computed.
        consumer: The function that uses it.
        at: A variable of its loops.
        tree: Whether Halide knows that the combination is associative, so that lanes can be combined as a tree.
    """
    partial, folded, total, vector = reduction.partial, reduction.folded, reduction.total, reduction.vector
    lane = partial.args()[0]
    partial.compute_at(consumer, at).bound_extent(lane, VECTORS * vector).vectorize(lane, vector).unroll(lane)
    outer = [reduction.chunks[axis] for axis in range(reduction.chunks.dimensions())]
    partial.update().reorder(lane, *outer).vectorize(lane, vector).unroll(lane)
    folded.compute_at(consumer, at).bound_extent(lane, vector).vectorize(lane, vector)
    # Elements of one vector go to different lanes: element modulo the vector's width, and vectors begin at multiples
    # of it.
    tail = folded.update().allow_race_conditions()
    tail.vectorize(reduction.tail[0], vector, hl.TailStrategy.GuardWithIf)
    total.compute_at(consumer, at)
    if tree:
        total.update().atomic().vectorize(reduction.across.x, vector)


def parallel_columns(definition: Definition, desc: OpDesc) -> Any:
    """Cut an output (i, ..., z) into strips of ``lanes`` columns, divided among the tasks; return the strips' loop."""
    out, lanes = definition.outputs[0], desc.variant["lanes"]
    i, *between, z = out.args()
    io, ii = variables("io ii")
    out.split(i, io, ii, lanes, hl.TailStrategy.ShiftInwards).reorder(ii, *between, io, z).vectorize(ii)
    buffer = out.output_buffer()
    strips = (buffer.dim(0).extent() + lanes - 1) // lanes
    alone(out, definition.tasks)
    divide_loops(out, [(io, strips, 1), (z, buffer.dim(len(between) + 1).extent(), 1)], definition.tasks)
    return io


def parallel_rows(out: Any, first: int, tasks: Any) -> Any:
    """Divide the loops over an output's rows among tasks, the two innermost of them, and return the innermost variable.

    Args:
        out: The output; what else is scheduled of it must be scheduled before.
        first: The innermost dimension of rows; all from there on are outermost of its loops.
        tasks: Number of tasks, an expression.
    """
    rows, buffer = out.args()[first:], out.output_buffer()
    divide_loops(out, [(row, buffer.dim(axis).extent(), 1) for axis, row in enumerate(rows, first)], tasks)
    return rows[0]
