"""Recurrences over sequences.

Attributes: ``kind``, ``directions``, ``activations``, ``linear``, ``coupled``; operands as ``family.describe`` has
them. A step of an LSTM, ``s`` the hidden state before it and ``c`` the cell::

    i, o, f, g = projected + weights * s                  (peepholes: i, f += p * c, o += p * new c)
    new c = act(f) * c + act(i) * act(g)                  (coupled: 1 - act(i) in the place of act(f))
    new s = act(o) * act(new c)

and of gated recurrent units::

    z, r = act(projected + weights * s)
    h = act(projected + weights * (r * s))                (linear: r * (weights * s + bias))
    new s = (1 - z) * h + z * s

``projected`` is what the inputs and biases add: computed before, or if the kernel is fused by products with
``input_weights`` that are added up before those with the state; the bias is added to their sum.

A sequence keeps its state at steps beyond its length, where ``every`` is 0; one of no steps ends in zeros. Backwards,
steps are taken from the last one on, so that a shorter sequence begins at its own end.

What a step reads of the step before it is in the memory of the outputs: ``previous`` is ``hidden`` under another name,
because a function of Halide cannot depend on itself by way of another one. ``schedule`` says why that is safe.

With ``kept`` it also gives what goes into the activation of each gate, of an LSTM but for what it sees of the cell, and
then the cell, or of a linear GRU what is reset: 0 where a sequence has ended.

In the mode ``high_precision`` products are added up in float64.

With weights of int8 the state of a sequence becomes uint8 at each step, as DynamicQuantizeLinear makes it: its range
and 0 are divided into 255 steps. Products are added up exactly; ``sums`` of the weights take the zero point out of
them. A state with a NaN or an infinity has the step NaN, so that its sequence becomes NaN and no other.

Schedule: one step after the other, all gates of some units at once.

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

import math
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, parameters, variables
from opbuild.backend.halide.division import share
from opbuild.backend.halide.expression import compile_expression
from opbuild.backend.halide.mathematics import FLOAT32, FLOAT64
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json
from opbuild.target.machine import Machine

Expr = Any

PAIR = 2
"""Neighbours along K whose products one instruction adds up, if it takes numbers of 16 bits."""

GREATEST = 255
"""Steps into which the range of a state is divided."""


def define(desc: OpDesc) -> Definition:
    """Return the definition of all steps."""
    return _Recurrence(desc).definition()


class _Recurrence:
    """The functions of one recurrence; ``t`` counts steps in the order in which they are taken."""

    def __init__(self, desc: OpDesc) -> None:
        self.desc = desc
        self.inputs = parameters(desc)
        self.given = {operand.name: each for operand, each in zip(desc.inputs, self.inputs, strict=True)}
        self.j, self.g, self.b, self.d, self.t = variables("j g b d t")
        self.place = (self.j, self.b, self.d, self.t)
        previous = self.given["previous"]
        self.hidden, self.batch = (previous.dim(axis).extent() for axis in (0, 1))
        self.is_fused = "x" in self.given
        self.steps = self.given["x"].dim(2).extent() if self.is_fused else self.given["projected"].dim(4).extent()
        weights = next(operand for operand in desc.inputs if operand.name == "weights")
        self.panel, self.group = weights.dims[-5].extent, weights.dims[0].extent
        self.is_integer = weights.dtype == "int8"
        self.functions: dict[str, Any] = {}
        self.kept: list[Any] = []
        self.domains: dict[str, Any] = {}

    def definition(self) -> Definition:
        state = self._named("state", self._state())
        news = {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[self.desc.attrs["kind"]](state)
        steps = self.domains["steps"] = hl.RDom([(0, self.steps)], "steps")
        out, s = hl.Func("out"), hl.Var("s")
        now, there = (self.j, self.b, self.d, steps.x), self._position(steps.x)
        length = hl.clamp(self.given["lengths"][self.b], 0, self.steps)
        runs = there < length
        kept = [hl.Expr(state[now]), self._before("initial_cell", "previous_cell", steps.x)][: len(news)]
        zero, found = hl.f32(0), [hl.Expr(new[now]) for new in news]
        values = [hl.select(runs, found[0], zero)]
        for new, old in zip(found, kept, strict=True):
            values.append(hl.strict_float(hl.select(runs, new, hl.select(length > 0, old, zero))))
        values += [hl.select(runs, hl.Expr(each[now]), zero) for each in self.kept]
        out[self.j, self.b, self.d, s] = tuple(hl.undef(FLOAT32) for _ in values)
        out[self.j, self.b, self.d, there] = tuple(values)
        for axis in range(4):
            out.output_buffers()[0].dim(axis).set_min(0)
        names = {"j": self.j, "b": self.b, "d": self.d}
        return Definition(self.inputs, [out], names, self.functions, self.domains, dots=self.is_integer)

    # -- what a step begins with --------------------------------------------------------------------------------------

    def _state(self) -> Expr:
        """Return the hidden state before a step; rows of a tile beyond the last sequence repeat it."""
        b = hl.clamp(self.b, 0, self.batch - 1)
        initial, previous = (self.given[name][self.j, b, self.d] for name in ("initial", "previous"))
        return hl.select(self.t == 0, initial, previous)

    def _before(self, initial: str, previous: str, t: Any) -> Expr:
        place = (self.j, self.b, self.d)
        if initial not in self.given:
            return hl.f32(0)
        return hl.select(t == 0, self.given[initial][place], self.given[previous][place])

    def _position(self, t: Any) -> Expr:
        """Return the element of the sequences that a step takes."""
        last = self.steps - 1
        places = {"forward": t, "reverse": last - t, "both": hl.select(self.d == 0, t, last - t)}
        return places[self.desc.attrs["directions"]]

    # -- products -----------------------------------------------------------------------------------------------------

    def _sum(self, name: str, gates: tuple[int, ...], states: tuple[Any, ...]) -> Any:
        """Return the function of the products of some gates' weights, each with a state of its own."""
        if self.is_integer:
            return self._integer_sum(name, states[0])
        kind = FLOAT64 if self.desc.is_precise else FLOAT32
        k = self.domains[name] = hl.RDom([(0, self.hidden)], f"{name}_k")
        place = (self.j, self.g, self.b, self.d, self.t)
        gate, state = hl.mux(self.g, list(gates)), hl.Expr(states[0][k.x, self.b, self.d, self.t])
        if len(set(states)) > 1:
            state = hl.mux(self.g, [hl.Expr(each[k.x, self.b, self.d, self.t]) for each in states])
        total = self.functions[name] = hl.Func(name)
        total[place] = hl.cast(kind, 0)
        if self.is_fused:
            i = self.domains[f"{name} of inputs"] = hl.RDom([(0, self.given["x"].dim(0).extent())], f"{name}_i")
            b = hl.clamp(self.b, 0, self.batch - 1)
            x = self.given["x"][i.x, b, self._position(self.t)]
            total[place] += hl.cast(kind, self._weight("input_weights", gate, i.x)) * hl.cast(kind, x)
        total[place] += hl.cast(kind, self._weight("weights", gate, k.x)) * hl.cast(kind, state)
        return total

    def _integer_sum(self, name: str, state: Any) -> Any:
        """Return the function of the products of all gates' weights of int8 with the state's steps from 0."""
        self._quantize(state)
        group, total = self.group, hl.Func(name)
        place = (self.j, self.g, self.b, self.d, self.t)

        def product(number: Any, byte: Any) -> Expr:
            weight = self.given["weights"][byte, self.j % self.panel, self.g, number, self.j // self.panel, self.d]
            weight = hl.i16(weight) if group == PAIR else weight  # what the instruction for pairs multiplies
            return hl.i32(weight) * hl.i32(self.functions["bytes"][number * group + byte, self.b, self.d, self.t])

        k = self.domains[name] = hl.RDom([(0, group), (0, self.hidden // group)], "k")
        rest = self.domains["rest"] = hl.RDom([(0, self.hidden % group)], "rest")
        total[place] = hl.i32(0)
        total[place] += product(k.y, k.x)
        total[place] += product(self.hidden // group, rest.x)
        self.functions[name] = total
        return total

    def _quantize(self, state: Any) -> None:
        """Define the hidden state as bytes, what their steps are worth and the one that is 0.

        The state is read in panels, whose greatest numbers of either sign are kept a lane apart.
        """
        names = ("peaks", "peak", "unit", "step", "zero", "bytes")
        peaks, peak, unit, step, zero, whole_numbers = (
            self.functions.setdefault(name, hl.Func(name)) for name in names
        )
        lane, side, k = variables("lane side k")
        place = (self.b, self.d, self.t)

        def share(k: Any) -> Expr:
            value = hl.Expr(state[(k, *place)])
            return hl.select(hl.is_nan(value), FLOAT32.max(), hl.select(side == 0, value, -value))

        panels, lanes = self.hidden // self.panel, hl.RDom([(0, self.panel)], "lanes")
        whole = self.domains["whole"] = hl.RDom([(0, panels)], "whole")
        beyond = self.domains["beyond"] = hl.RDom([(0, self.hidden % self.panel)], "beyond")
        self.domains["lanes"] = lanes
        peaks[(lane, side, *place)] = hl.f32(0)
        peaks[(lane, side, *place)] = hl.max(peaks[(lane, side, *place)], share(whole.x * self.panel + lane))
        peak[(side, *place)] = hl.f32(0)
        peak[(side, *place)] = hl.max(peak[(side, *place)], peaks[(lanes.x, side, *place)])
        peak[(side, *place)] = hl.max(peak[(side, *place)], share(panels * self.panel + beyond.x))
        low, high = hl.Expr(peak[(1, *place)]), hl.Expr(peak[(0, *place)])
        spread = high + low
        finite = spread < FLOAT32.max()
        unit[place] = hl.strict_float(hl.select(finite & (spread > 0), spread / hl.f32(GREATEST), hl.f32(1)))
        # It is stored: of what follows in registers the compiler takes for granted that it is no NaN.
        step[place] = hl.strict_float(hl.select(finite, hl.Expr(unit[place]), hl.f32(math.nan)))
        zero[place] = hl.clamp(hl.round(low / unit[place]), 0, GREATEST)
        value = hl.round(state[(k, *place)] / unit[place]) + zero[place]
        kind = hl.Int(16) if self.group == PAIR else hl.UInt(8)
        whole_numbers[(k, *place)] = hl.cast(kind, hl.clamp(value, 0, GREATEST))

    def _weight(self, name: str, gate: Expr, k: Any) -> Expr:
        return self.given[name][self.j % self.panel, gate, k, self.j // self.panel, self.d]

    def _added(self, gate: int) -> Expr:
        """Return the addend of a gate's products: its projected input, with its bias where that is added here."""
        if self.is_fused:
            return self.given["bias"][self.j, gate, self.d]
        b = hl.clamp(self.b, 0, self.batch - 1)
        return self.given["projected"][self.j, gate, b, self.d, self._position(self.t)]

    def _gate(self, gate: int, total: Any, number: int) -> Expr:
        """Return the argument of a gate's activation; its products are the ``number``-th of ``total``."""
        product = total[self.j, number, self.b, self.d, self.t]
        if self.is_integer:
            zero, step = (hl.Expr(self.functions[name][self.b, self.d, self.t]) for name in ("zero", "step"))
            exact = product - hl.i32(zero) * self.given["sums"][self.j, gate, self.d]
            product = hl.f32(exact) * (step * self.given["scales"][self.j, gate, self.d])
        return hl.cast(FLOAT32, self._added(gate) + product)

    def _activated(self, number: int, x: Expr) -> Expr:
        expression = from_json(self.desc.attrs["activations"][number])
        return compile_expression(expression, [], self.place, x, refined=self.desc.is_precise)

    def _named(self, name: str, value: Expr) -> Any:
        function = self.functions[name] = hl.Func(name)
        function[self.place] = hl.strict_float(value)
        return function

    # -- the cells ----------------------------------------------------------------------------------------------------

    def _rnn(self, state: Any) -> list[Any]:
        total = self._sum("sum", (0,), (state,))
        return [self._named("new", self._activated(0, self._gate(0, total, 0)))]

    def _gru(self, state: Any) -> list[Any]:
        one, here = hl.f32(1), hl.Expr(state[self.place])
        if self.desc.attrs["linear"]:
            total = self._sum("sum", (0, 1, 2), (state,) * 3)
            product = hl.cast(FLOAT32, total[self.j, 2, self.b, self.d, self.t] + self.given["bias"][self.j, self.d])
            updating, resetting = (self._gate(gate, total, gate) for gate in range(2))
            candidate = self._added(2) + self._activated(0, resetting) * product
            updating, _, candidate, _ = self._keep([updating, resetting, candidate, product])
        else:
            resets = self._sum("reset_sum", (1,), (state,))
            kept = self._named("reset", self._activated(0, self._gate(1, resets, 0)) * here)
            total = self._sum("sum", (0, 2), (state, kept))
            updating, candidate = self._gate(0, total, 0), self._gate(2, total, 1)
        update = self._named("update", self._activated(0, updating))[self.place]
        return [self._named("new", (one - update) * self._activated(1, candidate) + update * here)]

    def _lstm(self, state: Any) -> list[Any]:
        total = self._sum("sum", (0, 1, 2, 3), (state,) * 4)
        cell = self._before("initial_cell", "previous_cell", self.t)
        sums = [self._gate(gate, total, gate) for gate in range(4)]
        into, output, forget, candidate = self._keep(sums)
        taken = self._activated(0, self._seen(into, 0, cell))
        if self.desc.attrs["coupled"]:
            taken = hl.Expr(self._named("taken", taken)[self.place])
            kept = hl.f32(1) - taken
        else:
            kept = self._activated(0, self._seen(forget, 2, cell))
        new_cell = self._named("new_cell", kept * cell + taken * self._activated(1, candidate))
        self.kept += [new_cell] if self.kept else []
        after = hl.Expr(new_cell[self.place])
        opened = self._activated(0, self._seen(output, 1, after))
        return [self._named("new", opened * self._activated(2, after)), new_cell]

    def _keep(self, values: list[Expr]) -> list[Expr]:
        """Return values that outputs have, too, if they are asked for, as those are read."""
        if not self.desc.attrs.get("kept"):
            return values
        self.kept = [self._named(f"kept{number}", each) for number, each in enumerate(values)]
        return [hl.Expr(each[self.place]) for each in self.kept]

    def _seen(self, gate: Expr, number: int, cell: Expr) -> Expr:
        """Return the argument of an activation, with the peephole's share of the cell."""
        if "peepholes" not in self.given:
            return gate
        return gate + self.given["peepholes"][self.j, number, self.d] * cell


GUARD = hl.TailStrategy.GuardWithIf

LEAST_STEP = 1 << 17
"""Products of a step that are worth being divided among tasks: 4 microseconds on one core."""

LARGE = 384
"""Hidden units from which on the weights do not fit a core's cache, so that each core is to read a part of them; twice
as many where they are of int8."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a recurrence."""
    _Schedule(definition, desc, machine).apply()


class _Schedule:
    """Schedules the functions of one recurrence."""

    def __init__(self, definition: Definition, desc: OpDesc, machine: Machine) -> None:
        self.definition, self.functions, self.lanes = definition, definition.functions, machine.lanes
        self.out, self.step = definition.outputs[0], definition.domains["steps"].x
        self.rows, self.gates = desc.variant["rows"], desc.variant["gates"]
        weights = next(operand for operand in desc.inputs if operand.name == "weights")
        panel, gates = (dim.extent for dim in weights.dims[-5:-3])
        at_once, large = (4, 2 * LARGE) if weights.dtype == "int8" else (1, LARGE)
        self.columns = panel * desc.variant["panels"]
        self.summed = {"sum": gates - ("reset" in self.functions), "reset_sum": 1}
        first, tasks = self.out.output_buffers()[0], definition.tasks
        hidden, self.batch, directions = (first.dim(axis).extent() for axis in range(3))
        tiles = (self.batch + (self.rows - 1)) // self.rows
        by_direction = (directions % tasks == 0) & (tasks > 1)
        by_sequence = (directions % tasks != 0) & (tiles >= tasks) & (hidden < large)
        self.directions = hl.select(by_direction, 1, hl.max(1, directions))
        self.sequences = hl.select(by_sequence, share(tiles, tasks), hl.max(1, tiles))
        products = gates * hidden * hidden * self.batch * directions
        by_units = (tasks > 1) & (products >= LEAST_STEP * at_once)
        by_units = by_units & (directions % tasks != 0) & ((tiles < tasks) | (hidden >= large))
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
        if "bytes" in self.functions:
            self._quantize()
            self._integer_sum(rows)
        else:
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

    def _quantize(self) -> None:
        """Make bytes of all of a step's state before its tiles."""
        functions, domains = self.functions, self.definition.domains
        for name in ("peak", "unit", "step", "zero", "bytes"):
            functions[name].compute_at(self.out, self.step).never_partition_all()
        peak, peaks = functions["peak"], functions["peaks"]
        side, b, *_ = peak.args()
        lane = peaks.args()[0]
        peak.bound_extent(side, 2)
        peaks.compute_at(peak, b).bound_extent(side, 2).vectorize(lane, self.lanes).unroll(lane).unroll(side)
        update = peaks.update().reorder(lane, side, domains["whole"].x)
        update.vectorize(lane, self.lanes).unroll(lane).unroll(side)
        peak.update(0).atomic().vectorize(domains["lanes"].x)
        peak.update(1).unroll(side)
        self._vectors(functions["bytes"])

    def _integer_sum(self, at: Any) -> None:
        """Keep the sums of all gates of a tile in registers while groups of the state pass."""
        total, k, rest = self.functions["sum"], self.definition.domains["sum"], self.definition.domains["rest"]
        j, g, b, *_ = total.args()
        count = self.summed["sum"]
        total.compute_at(self.out, at).bound_extent(j, self.columns).bound_extent(b, self.rows).bound_extent(g, count)
        total.vectorize(j, self.lanes).unroll(j).unroll(g).unroll(b)
        outer, inner, some, gate = variables("outer inner some gate")
        update = total.update(0).split(g, some, gate, min(self.gates, count)).split(j, outer, inner, self.lanes)
        update.reorder(k.x, inner, outer, gate, b, k.y, some)
        update.atomic().vectorize(k.x).vectorize(inner).unroll(outer).unroll(gate).unroll(b)
        total.update(1).reorder(j, g, b, rest.x).vectorize(j, self.lanes).unroll(j).unroll(g).unroll(b)
        total.never_partition_all()
