"""Recurrences over sequences: how they are computed: one step after the other, all gates of some units at once.

A tile is ``rows`` sequences by ``panels`` panels of 16 hidden units: the sums of ``gates`` of its gates stay in
registers while the hidden state passes by. The state before a step is copied first: tiles overwrite it.

Directions, or where there are enough the sequences, are divided among tasks that take all steps alone. Otherwise each
step is divided, by its panels; a step takes microseconds, so few are worth it.

That ``previous`` and ``hidden`` are the same memory is not known to the compiler, which may move a read before a write
of another name. It cannot move one over the call of a function that it does not see: the copy of the state is a
parallel loop of one task, a call of the runtime. All other reads of a step lie behind that call, and each before the
write of its own place: ``cell`` is what a tile writes last.

Variant: ``rows``, ``panels``, ``gates``. Limits: the panels of the weights are a multiple of ``panels``.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, variables
from opbuild.backend.halide.division import share
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

GUARD = hl.TailStrategy.GuardWithIf

LEAST_STEP = 1 << 17
"""Products of a step that are worth being divided among tasks: 4 microseconds on one core."""

LARGE = 384
"""Hidden units from which on the weights do not fit a core's cache, so that each core is to read a part of them."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a recurrence."""
    _Schedule(definition, desc, machine).apply()


class _Schedule:
    """Schedules the functions of one recurrence."""

    def __init__(self, definition: Definition, desc: OpDesc, machine: Machine) -> None:
        self.definition, self.functions, self.lanes = definition, definition.functions, machine.lanes
        self.out, self.step = definition.outputs[0], definition.domains["steps"].x
        self.rows, self.gates = desc.variant["rows"], desc.variant["gates"]
        panel, gates = (dim.extent for dim in next(x for x in desc.inputs if x.name == "weights").dims[:2])
        self.columns = panel * desc.variant["panels"]
        self.summed = {"sum": gates - ("reset" in self.functions), "reset_sum": 1}
        first, tasks = self.out.output_buffers()[0], definition.tasks
        hidden, self.batch, directions = (first.dim(axis).extent() for axis in range(3))
        tiles = (self.batch + (self.rows - 1)) // self.rows
        by_direction = (directions % tasks == 0) & (tasks > 1)
        by_sequence = (directions % tasks != 0) & (tiles >= tasks) & (hidden < LARGE)
        self.directions = hl.select(by_direction, 1, hl.max(1, directions))
        self.sequences = hl.select(by_sequence, share(tiles, tasks), hl.max(1, tiles))
        products = gates * hidden * hidden * self.batch * directions
        by_units = (tasks > 1) & (products >= LEAST_STEP)
        by_units = by_units & (directions % tasks != 0) & ((tiles < tasks) | (hidden >= LARGE))
        # One direction after the other, so that a core's cache holds the weights of one.
        self.at_once = hl.select(by_units, hl.max(1, directions), 1)
        columns = (hidden + (self.columns - 1)) // self.columns
        each = (tasks + directions - 1) // hl.max(1, directions)
        self.chunk = share(columns, hl.select(by_units, each, 1))

    def apply(self) -> None:
        """Schedule all functions."""
        j, b, d = (self.definition.variables[name] for name in ("j", "b", "d"))
        update = self.out.update()
        loops, rows, tile = self._tile(update, j, b)
        apart, turn, group, several = variables("apart turn group several")
        update.split(d, apart, d, self.directions, GUARD).split(d, turn, d, self.at_once, GUARD)
        update.split(rows, group, rows, self.sequences, GUARD)
        chunk = self._chunks(update, tile)
        update.reorder(*loops, rows, tile, chunk, d, self.step, turn, group, apart)
        update.fuse(group, apart, several).parallel(several)
        self._together(update, chunk, d)
        update.never_partition_all()
        self._copy_state()
        self._sum("sum", self.out, rows)
        if "reset" in self.functions:
            self._reset()
        for name in (*(f"kept{number}" for number in range(4)), "taken", "update", "new_cell", "new"):
            if name in self.functions:
                part = self.functions[name].compute_at(self.out, rows)
                unit, sequence, *_ = part.args()
                part.bound_storage(unit, self.columns).bound_storage(sequence, self.rows)
                self._vectors(part.store_in(hl.MemoryType.Stack))

    def _tile(self, stage: Any, j: Any, b: Any) -> tuple[list[Any], Any, Any]:
        """Cut units and sequences into tiles; return the loops within one, the one over rows and over columns."""
        tile, rows, lane, row = variables("tile rows lane row")
        stage.split(j, tile, j, self.columns, GUARD).split(b, rows, row, self.rows, GUARD)
        stage.split(j, j, lane, self.lanes, GUARD).vectorize(lane)
        return [lane, j, row], rows, tile

    def _chunks(self, stage: Any, tile: Any) -> Any:
        chunk = hl.Var("chunk")
        stage.split(tile, chunk, tile, self.chunk, GUARD)
        return chunk

    def _together(self, stage: Any, chunk: Any, direction: Any) -> None:
        """Divide the chunks of tiles of a step, of all its directions, among tasks."""
        part = hl.Var("part")
        stage.fuse(chunk, direction, part).parallel(part)

    def _reset(self) -> None:
        """Compute all of a step's reset state before its candidates."""
        reset = self.functions["reset"].compute_at(self.out, self.step)
        j, b, d, _ = reset.args()
        loops, rows, tile = self._tile(reset, j, b)
        chunk = self._chunks(reset, tile)
        reset.reorder(*loops, rows, tile, chunk, d)
        self._together(reset, chunk, d)
        reset.never_partition_all()
        self._sum("reset_sum", reset, rows)

    def _copy_state(self) -> None:
        state, once = self.functions["state"].compute_at(self.out, self.step), hl.Var("once")
        _, b, d, t = state.args()
        state.split(b, once, b, hl.max(1, self.batch) + self.rows, GUARD)
        state.reorder(b, d, t, once).parallel(once)
        self._vectors(state)

    def _vectors(self, function: Any) -> None:
        function.vectorize(function.args()[0], self.lanes, GUARD).never_partition_all()

    def _sum(self, name: str, consumer: Any, at: Any) -> None:
        """Keep the sums of some gates of a tile in registers while the state passes."""
        total, domains = self.functions[name], self.definition.domains
        loops = [domains[each].x for each in (f"{name} of inputs", name) if each in domains]
        j, g, b, *_ = total.args()
        count = self.summed[name]
        total.compute_at(consumer, at).bound_extent(j, self.columns).bound_extent(b, self.rows).bound_extent(g, count)
        total.vectorize(j, self.lanes).unroll(j).unroll(g).unroll(b)
        some, gate = variables("some gate")
        for number, k in enumerate(loops):
            update = total.update(number).split(g, some, gate, min(self.gates, count)).reorder(j, gate, b, k, some)
            update.vectorize(j, self.lanes).unroll(j).unroll(gate).unroll(b)
        total.never_partition_all()
