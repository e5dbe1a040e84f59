"""Recurrences over sequences, defined.

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
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, parameters, variables
from opbuild.backend.halide.expression import compile_expression
from opbuild.backend.halide.mathematics import FLOAT32, FLOAT64
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json

Expr = Any


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
        self.panel = next(operand for operand in desc.inputs if operand.name == "weights").dims[0].extent
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
        return Definition(self.inputs, [out], names, self.functions, self.domains)

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
