"""Gradients of recurrent layers: RNN, GRU and LSTM.

The hidden states of all steps are known, and what has gone into the gates is asked of the layer, or computed again at
once; with both, what the gradient of each step's state is to be multiplied by. What is left is a chain: what flows into
a step's state needs what flowed into the one behind it. It is written out, for each step a product and a formula or
two. Gradients of weights and inputs are products of all steps again.

Tensors are in the order of steps, whatever the layout: ``(T, D, B, G, H)``, steps in the order in which they are taken,
directions, sequences, gates, units; without gates ``(T, D, B, N)``. A sequence that ends early is padded behind its end
in each direction: what flows into its last state flows into its last step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite

import numpy as np

from opbuild.graph.gradients.reduction import turned
from opbuild.graph.gradients.registry import FORMULAS, Backward, Term, gradient, is_empty
from opbuild.graph.graph_builder import Value
from opbuild.graph.recurrent import GATES, Activation, Cell, cell_of
from opbuild.operations.derivatives import DERIVATIVES
from opbuild.operations.table import of_onnx

END = -(2**31)


class Layout:
    """So many directions of a layer, from the one numbered ``start`` on."""

    def __init__(self, of: Backward, cell: Cell, start: int, count: int) -> None:
        self.of, self.cell = of, cell
        self.start, self.directions = start, count
        self.reverse = cell.reverse[start : start + count]
        self.gates, self.hidden = GATES[cell.kind], of.input(2).shape[-1]
        x = of.input(0)
        self.dtype = x.dtype
        self.steps, self.batch, self.size = [x.shape[axis] for axis in ((1, 0, 2) if cell.batch_first else (0, 1, 2))]
        given = of.optional(4)
        self.lengths = None if given is None else self.of.cast(given, "int64")

    # -- what is read -------------------------------------------------------------------------------------------------

    def inputs(self) -> Term:
        """Return each step's inputs ``(T, D, B, I)``; zeros behind a sequence's end, where anything may stand."""
        x = self.of.input(0)
        x = self.of.transpose(x, (1, 0, 2)) if self.cell.batch_first else x
        one = self.of.reshape(x, (self.steps, 1, self.batch, self.size))
        wide = one if self.directions == 1 else self.of("Concat", *(one,) * self.directions, axis=1)
        return self._counting(self.ordered(wide))

    def weights(self, index: int) -> Value:
        """Return these directions of an input ``(D, ...)``."""
        return self.of.part(self.of.input(index), 0, self.start, self.start + self.directions)

    def parts(self, index: int, count: int) -> list[Term]:
        """Return vectors of an input ``(D, count * H)``, each as ``(D, 1, 1, H)``; zeros if it is absent."""
        if self.of.optional(index) is None:
            return [Term(self.of, self.of.constant(0.0, self.dtype))] * count
        given, size = Term(self.of, self.weights(index)), self.hidden
        ends = range(0, count * size, size)
        return [given.part(1, at, at + size).reshape((self.directions, 1, 1, size)) for at in ends]

    def biases(self) -> tuple[list[Term], list[Term]]:
        """Return the biases of each gate, those of inputs and those of states."""
        found = self.parts(3, 2 * self.gates)
        return found[: self.gates], found[self.gates :]

    def state(self, value: Value | None) -> Term:
        """Return these directions of a state, or of its gradient, as ``(1, D, B, H)``; zeros if it is absent."""
        shape = (1, self.directions, self.batch, self.hidden)
        if value is None:
            return Term(self.of, self.of.filled(0.0, self.dtype, shape))
        moved = self.of.transpose(value, (1, 0, 2)) if self.cell.batch_first else value
        return Term(self.of, moved).part(0, self.start, self.start + self.directions).reshape(shape)

    def every(self, value: Value) -> Term:
        """Return these directions of all hidden states, or of their gradients, as ``(T, D, B, H)``."""
        moved = self.of.transpose(value, (1, 2, 0, 3)) if self.cell.batch_first else value
        return Term(self.of, self.ordered(self.of.part(moved, 1, self.start, self.start + self.directions)))

    def hidden_states(self) -> Term:
        """Return the hidden state before each step."""
        found = self.of.outputs[0]
        if found is None:
            found = self._all_outputs(len(self.of.outputs))[0]
        return self.shifted(self.state(self.of.optional(5)), self.every(found))

    def kept(self) -> list[Term]:
        """Return the argument of each gate's activation, and the cell, or a linear GRU's values before the reset.

        The layer is asked to give it, too.
        """
        given = self.of.part(self._all_outputs(4)[3], 1, self.start, self.start + self.directions)
        return self.split(Term(self.of, self.ordered(given)))

    def _all_outputs(self, count: int) -> tuple[Value, ...]:
        """Return more outputs of the layer; a pass makes one layer of both."""
        return self.of.several(self.of.node.op_type, count, *self.of.inputs, **self.of.node.attrs)

    def flows(self) -> tuple[Term, Term, Term, Term]:
        """Return the gradients of each step's hidden state and cell, and of the last ones from behind.

        Where sequences have lengths, that is among what flows into each one's last step.
        """
        given = (*self.of.gradients, None, None)
        hidden, cell = (self.state(each) for each in given[1:3])
        none = self.state(None)
        every = none if given[0] is None else self.every(given[0])
        if self.lengths is None:
            return every, none, hidden, cell
        last, zero = self._compare("Equal", 1), self.of.constant(0.0, self.dtype)
        ends = [Term(self.of, self.of("Where", last, each.value, zero)) for each in (hidden, cell)]
        return Term(self.of, self._counting(every.value).value) + ends[0], ends[1], none, none

    # -- steps and directions -----------------------------------------------------------------------------------------

    def ordered(self, x: Value) -> Value:
        """Return ``(T, D, B, N)`` in the order in which steps are taken, or from it back."""
        if not any(self.reverse):
            return x
        parts = [self.of.part(x, 1, number, number + 1) for number in range(self.directions)]
        moved = [self._reversed(part) if back else part for part, back in zip(parts, self.reverse, strict=True)]
        return moved[0] if len(moved) == 1 else self.of("Concat", *moved, axis=1)

    def _reversed(self, x: Value) -> Value:
        of = self.of
        if self.lengths is None:
            return of("Slice", x, of.ints(-1), of.ints(END), of.ints(0), of.ints(-1))
        flat = of.reshape(x, (self.steps, self.batch, x.shape[-1]))
        return of.reshape(of("ReverseSequence", flat, self.lengths, time_axis=0, batch_axis=1), x.shape)

    def _counting(self, x: Value) -> Term:
        """Return ``(T, D, B, N)`` with zeros behind each sequence's end."""
        if self.lengths is None:
            return Term(self.of, x)
        return Term(self.of, self.of("Where", self._compare("Less", 0), x, self.of.constant(0.0, self.dtype)))

    def _compare(self, how: str, first: int) -> Value:
        """Return whether each step's number, from ``first`` on, compares to a sequence's length ``(T, 1, B, 1)``."""
        of = self.of
        if self.lengths is None:
            self.of.refuse("sequences have no lengths")
        numbers = of.reshape(of.ints(*range(first, self.steps + first)), (self.steps, 1, 1, 1))
        return of(how, numbers, of.reshape(self.lengths, (1, 1, self.batch, 1)))

    def each(self, x: Term) -> list[Term]:
        """Return the steps of a tensor, each with an extent of 1; one that has no steps is the same at each."""
        if x.shape[0] != self.steps or self.steps == 1:
            return [x] * self.steps
        sizes = self.of.ints(*(1,) * self.steps)
        return [Term(self.of, part) for part in self.of.several("Split", self.steps, x.value, sizes, axis=0)]

    def stacked(self, steps: Sequence[Term]) -> Term:
        """Return steps in one tensor."""
        return self._joined(steps, 0) if len(steps) > 1 else steps[0]

    def shifted(self, first: Term, every: Term) -> Term:
        """Return the states before each step, given the one before the first and those behind each."""
        if self.steps == 1:
            return first
        return self._joined([first, every.part(0, 0, self.steps - 1)], 0)

    def _joined(self, parts: Sequence[Term], axis: int) -> Term:
        return Term(self.of, self.of("Concat", *(each.value for each in parts), axis=axis))

    # -- gates --------------------------------------------------------------------------------------------------------

    def split(self, x: Term) -> list[Term]:
        """Return the gates of ``(T, D, B, G * H)``, each ``(T, D, B, 1, H)``."""
        ends = range(0, x.shape[3], self.hidden)
        return [self.tall(x.part(3, at, at + self.hidden)) for at in ends]

    def rows(self, *gates: Term) -> Term:
        """Return gates side by side."""
        return self._joined(gates, 3)

    def flat(self, x: Term) -> Term:
        """Return ``(T, D, B, G, H)`` as ``(T, D, B, G * H)``."""
        return x.reshape((*x.shape[:3], x.shape[3] * x.shape[4]))

    def tall(self, x: Term) -> Term:
        """Return ``(T, D, B, H)`` as ``(T, D, B, 1, H)``."""
        return x.reshape((*x.shape[:3], 1, self.hidden))

    # -- products -----------------------------------------------------------------------------------------------------

    def times(self, x: Term, matrix: Value) -> Term:
        """Return the products of all steps with a matrix of each direction: ``(T, D, B, N)``, ``(D, N, M)``."""
        of, columns = self.of, matrix.shape[-1]
        found = of("MatMul", self._by_direction(x), matrix)
        if self.directions == 1:
            return Term(of, of.reshape(found, (self.steps, 1, self.batch, columns)))
        apart = of.reshape(found, (self.directions, self.steps, self.batch, columns))
        return Term(of, of.transpose(apart, (1, 0, 2, 3)))

    def outer(self, rows: Term, columns: Term) -> Value:
        """Return the products of each row with each column, summed over steps and sequences ``(D, N, M)``."""
        turned = self.of.transpose(self._by_direction(rows), (0, 2, 1))
        return self.of("MatMul", turned, self._by_direction(columns))

    def _by_direction(self, x: Term) -> Value:
        """Return ``(T, D, B, N)`` as ``(D, T * B, N)``."""
        first = x.value if self.directions == 1 else self.of.transpose(x.value, (1, 0, 2, 3))
        return self.of.reshape(first, (self.directions, self.steps * self.batch, x.value.shape[-1]))

    def summed(self, x: Term) -> Value:
        """Return ``(T, D, B, N)`` summed over steps and sequences: ``(D, N)``."""
        return self.of.sum(x.value, (0, 2))

    # -- what is given back -------------------------------------------------------------------------------------------

    def of_inputs(self, slopes: Term) -> Value:
        """Return the gradient of the layer's inputs from that of each direction's, ``(T, D, B, I)``."""
        both = self.of.sum(self.ordered(slopes.value), (1,))
        return self.of.transpose(both, (1, 0, 2)) if self.cell.batch_first else both

    def of_state(self, flow: Term) -> Value:
        """Return the gradient of a first state from ``(1, D, B, H)``."""
        own = self.of.reshape(flow.value, (self.directions, self.batch, self.hidden))
        return self.of.transpose(own, (1, 0, 2)) if self.cell.batch_first else own


Parts = list[Value | None]

FIRST_STATE, FIRST_CELL = 5, 6
"""The inputs that are states; the others are x, W, R, B, lengths and, last, an LSTM's peepholes."""


def recurrent(of: Backward, *, apart: bool = False) -> Sequence[Value | None]:
    """Differentiate a layer; directions of other activations are differentiated one after the other.

    Args:
        of: The layer.
        apart: Whether it is an LSTM in another network, which cannot be asked for what it has computed besides; such
            a one has no peepholes, and does not couple its gates.
    """
    cell = cell_of(of.node)
    if is_empty(of.input(0), of.input(2)):
        return [None if each is None else of.zeros(each) for each in of.inputs]
    count = len(cell.reverse)
    if len(set(cell.activations)) == 1:
        return _differentiated(of, Layout(of, cell, 0, count), apart)
    parts = [_differentiated(of, Layout(of, cell, number, 1), apart) for number in range(count)]
    axes = {FIRST_STATE: int(cell.batch_first), FIRST_CELL: int(cell.batch_first)}
    found: list[Value | None] = []
    for index, (first, second) in enumerate(zip(*parts, strict=True)):
        if first is None or second is None:
            found.append(None)
        elif index == 0:
            found.append(of("Add", first, second))
        else:
            found.append(of("Concat", first, second, axis=axes.get(index, 0)))
    return found


gradient("RNN", "GRU", "LSTM")(recurrent)


def _differentiated(of: Backward, layout: Layout, apart: bool) -> Parts:
    """Return the gradient of each input, as far as these directions go."""
    cell = layout.cell
    # The cell goes into LSTM's last activation as it is, as in the layer.
    bounds = [cell.clip if number < 2 and isfinite(cell.clip) else None for number in range(3)]
    activations = [_Activated(*each) for each in zip(cell.activations[layout.start], bounds, strict=False)]
    if cell.kind == "LSTM":
        return _lstm(layout, activations, apart)
    return {"RNN": _rnn, "GRU": _gru}[cell.kind](layout, activations)


_OWN: dict[str, tuple[Callable[..., Term], Callable[..., Term]]] = {
    "Affine": (lambda x, alpha, beta: x * alpha + beta, lambda factor, x, alpha, beta: factor * alpha),
    "ScaledTanh": (
        lambda x, alpha, beta: FORMULAS.tanh(x * beta) * alpha,
        lambda factor, x, alpha, beta: factor * (alpha * beta) * (1.0 - FORMULAS.square(FORMULAS.tanh(x * beta))),
    ),
}
"""Activations that are no operation, and what their slopes make of a factor."""


class _Activated:
    """An activation of terms, and its slope times a factor."""

    def __init__(self, activation: Activation, bound: float | None) -> None:
        self._activation, self._bound = activation, bound

    def value(self, x: Term) -> Term:
        """Return the value of the activation."""
        return self._plain(x if self._bound is None else FORMULAS.clip(x, -self._bound, self._bound))

    def slope(self, factor: Term, x: Term) -> Term:
        """Return a factor times the slope at ``x``; bounds are inside."""
        if self._bound is None:
            return self._plain_slope(factor, x)
        found = self._plain_slope(factor, FORMULAS.clip(x, -self._bound, self._bound))
        return FORMULAS.where(FORMULAS.greater(FORMULAS.abs(x), self._bound), 0.0, found)

    def _plain(self, x: Term) -> Term:
        name, alpha, beta = self._activation.name, self._activation.alpha, self._activation.beta
        if name in _OWN:
            return _OWN[name][0](x, alpha, beta)
        operation, numbers = self._operation()
        return getattr(FORMULAS, operation)(x, *numbers)  # type: ignore[no-any-return]  # operations give terms

    def _plain_slope(self, factor: Term, x: Term) -> Term:
        name, alpha, beta = self._activation.name, self._activation.alpha, self._activation.beta
        if name in _OWN:
            return _OWN[name][1](factor, x, alpha, beta)
        operation, numbers = self._operation()
        derivative = DERIVATIVES[operation][0]
        if derivative is None:
            raise ValueError(f"activation {name} has no slope")
        return derivative(FORMULAS, factor, self._plain(x), x, *numbers)  # type: ignore[no-any-return]  # a term

    def _operation(self) -> tuple[str, tuple[float, ...]]:
        found = of_onnx(self._activation.name, {})
        if found is None:
            raise ValueError(f"activation {self._activation.name} is unknown")
        onnx, operation = found
        return operation.name, (self._activation.alpha, self._activation.beta)[: len(onnx.parameters)]


def _layer_gradients(
    layout: Layout, x: Term, of_inputs: Term, of_states: Term, recurrence: Value, first: Term
) -> Parts:
    """Return the gradients that all cells have, by the gradients of the gates, ``(T, D, B, G * H)``.

    That is ``of_inputs`` by what inputs add, ``of_states`` by what states add; ``first`` flows into the first state.
    """
    of, wants = layout.of, layout.of.wants
    found: Parts = [None] * len(layout.of.inputs)
    if wants(0):
        found[0] = layout.of_inputs(layout.times(of_inputs, layout.weights(1)))
    if wants(1):
        found[1] = layout.outer(of_inputs, x)
    found[2] = recurrence
    if wants(3):
        summed = layout.summed(of_inputs)
        found[3] = of("Concat", summed, summed if of_states is of_inputs else layout.summed(of_states), axis=1)
    if wants(FIRST_STATE):
        found[FIRST_STATE] = layout.of_state(first)
    return found


def _products(layout: Layout, x: Term, states: Term) -> tuple[list[Term], list[Term]]:
    """Return the products of inputs and states with the weights of each gate, without biases."""
    of = layout.of
    return (
        layout.split(layout.times(x, turned(of, layout.weights(1)))),
        layout.split(layout.times(states, turned(of, layout.weights(2)))),
    )


# -- cells ------------------------------------------------------------------------------------------------------------


def _rnn(layout: Layout, activations: Sequence[_Activated]) -> Parts:
    """Differentiate ``h = f(W x + R h + b)``."""
    x, states = layout.inputs(), layout.hidden_states()
    (of_x,), (of_h,) = _products(layout, x, states)
    (own,), (other,) = layout.biases()
    one = Term(layout.of, layout.of.constant(1.0, layout.dtype))
    factors = layout.flat(activations[0].slope(one, of_x + of_h + (own + other)))
    every, _, behind, _ = layout.flows()
    weights, slopes = layout.weights(2), list[Term]()
    for factor, flow in zip(layout.each(factors)[::-1], layout.each(every)[::-1], strict=True):
        slopes.append(factor * (flow + behind))
        behind = slopes[-1] @ weights
    whole = layout.stacked(slopes[::-1])
    return _layer_gradients(layout, x, whole, whole, layout.outer(whole, states), behind)


def _gru(layout: Layout, activations: Sequence[_Activated]) -> Parts:
    """Differentiate ``h = (1 - z) n + z h``, where the candidate ``n`` sees the state by way of ``r``."""
    gate, new = activations
    x, states = layout.inputs(), layout.hidden_states()
    if layout.cell.linear_before_reset:
        *sums, candidate, seen = layout.kept()
        update, reset = (gate.value(each) for each in sums)
    else:
        of_x, of_h = _products(layout, x, states)
        bias_x, bias_h = layout.biases()
        sums = [of_x[i] + of_h[i] + (bias_x[i] + bias_h[i]) for i in (0, 1)]
        update, reset = (gate.value(each) for each in sums)
        kept = layout.flat(reset * layout.tall(states))
        inner = layout.of.part(layout.weights(2), 1, 2 * layout.hidden, 3 * layout.hidden)
        (seen,) = layout.split(layout.times(kept, turned(layout.of, inner)))
        candidate = of_x[2] + seen + (bias_x[2] + bias_h[2])
    of_new = new.slope(1.0 - update, candidate)
    of_update = gate.slope(layout.tall(states) - new.value(candidate), sums[0])
    if layout.cell.linear_before_reset:
        of_reset = gate.slope(of_new * seen, sums[1])
        flow, first = _walk(layout, layout.rows(of_update, of_reset, of_new * reset), update)
        both = layout.flat(layout.rows(of_update * flow, of_reset * flow, of_new * reset * flow))
        inputs = layout.flat(layout.rows(of_update * flow, of_reset * flow, of_new * flow))
        return _layer_gradients(layout, x, inputs, both, layout.outer(both, states), first)
    of_reset = gate.slope(layout.tall(states), sums[1])
    flow, opened, first = _walk_by_reset(layout, of_new, of_update, of_reset, update, reset)
    gates, last = layout.rows(of_update * flow, of_reset * opened), of_new * flow
    whole = layout.flat(layout.rows(gates, last))
    outer = layout.outer(layout.flat(gates), states), layout.outer(layout.flat(last), kept)
    return _layer_gradients(layout, x, whole, whole, layout.of("Concat", *outer, axis=1), first)


def _walk(layout: Layout, factors: Term, kept: Term) -> tuple[Term, Term]:
    """Return the gradients of each hidden state ``(T, D, B, 1, H)``, and of the first ``(1, D, B, H)``.

    Of what flows into a state each gate's sum gets ``factors``, and the state before ``kept``.
    """
    every, _, behind, _ = layout.flows()
    weights, found = layout.weights(2), list[Term]()
    steps = [layout.each(each)[::-1] for each in (factors, layout.flat(kept), every)]
    for factor, stays, flow in zip(*steps, strict=True):
        into = flow + behind
        found.append(layout.tall(into))
        behind = layout.flat(factor * found[-1]) @ weights + stays * into
    return layout.stacked(found[::-1]), behind


def _walk_by_reset(
    layout: Layout, new: Term, update: Term, reset: Term, kept: Term, passed: Term
) -> tuple[Term, Term, Term]:
    """Return the gradients of each hidden state, of each one that was reset, and of the first."""
    every, _, behind, _ = layout.flows()
    whole, size, found, opened = layout.weights(2), layout.hidden, list[Term](), list[Term]()
    outer, inner = (layout.of.part(whole, 1, *ends) for ends in ((0, 2 * size), (2 * size, 3 * size)))
    given = (layout.flat(new), update, reset, layout.flat(kept), layout.flat(passed), every)
    for n, z, r, stays, opens, flow in zip(*(layout.each(each)[::-1] for each in given), strict=True):
        into = flow + behind
        back = (n * into) @ inner
        found.append(layout.tall(into))
        opened.append(layout.tall(back))
        gates = layout.flat(layout.rows(z * found[-1], r * opened[-1]))
        behind = gates @ outer + (stays * into + opens * back)
    return layout.stacked(found[::-1]), layout.stacked(opened[::-1]), behind


def _lstm(layout: Layout, activations: Sequence[_Activated], apart: bool) -> Parts:
    """Differentiate ``c = f c + i g``, ``h = o act(c)``; gates may see the cell."""
    gate, new, last = activations
    x, states = layout.inputs(), layout.hidden_states()
    sees = layout.parts(7, 3) if layout.of.optional(7) is not None else None
    if apart:
        of_x, of_h = _products(layout, x, states)
        bias_x, bias_h = layout.biases()
        sums = [of_x[i] + of_h[i] + (bias_x[i] + bias_h[i]) for i in range(4)]
        cells = _cells(layout, activations, sums)
    else:
        *sums, cells = layout.kept()
    before = layout.tall(layout.shifted(layout.state(layout.of.optional(FIRST_CELL)), layout.flat(cells)))
    if sees is not None:
        of_input, of_output, of_forget = sees
        sums = [sums[0] + of_input * before, sums[1] + of_output * cells, sums[2] + of_forget * before, sums[3]]
    into, out, candidate = gate.value(sums[0]), gate.value(sums[1]), new.value(sums[3])
    shown = last.value(cells)
    by_output = gate.slope(shown, sums[1])  # each gate's part of what flows into the cell, or into the hidden state
    by_candidate = new.slope(into, sums[3])
    if layout.cell.coupled:
        forget = 1.0 - into
        by_input = gate.slope(candidate - before, sums[0])
        by_forget = by_input * 0.0
    else:
        forget = gate.value(sums[2])
        by_input, by_forget = gate.slope(candidate, sums[0]), gate.slope(before, sums[2])
    of_state = last.slope(out, cells)
    if sees is not None:
        of_state = of_state + of_output * by_output
        forget = forget + of_input * by_input + of_forget * by_forget
    by_cell = [by_input, by_forget, by_candidate]
    slopes, first, first_cell = _cell_walk(layout, by_cell, by_output, of_state, forget)
    flat = layout.flat(slopes)
    found = _layer_gradients(layout, x, flat, flat, layout.outer(flat, states), first)
    if layout.of.wants(FIRST_CELL):
        found[FIRST_CELL] = layout.of_state(first_cell)
    if sees is not None and layout.of.wants(7):
        seen = layout.rows(before, cells, before) * slopes.part(3, 0, 3)
        found[7] = layout.summed(layout.flat(seen))
    return found


def _cells(layout: Layout, activations: Sequence[_Activated], sums: Sequence[Term]) -> Term:
    """Return the cell behind each step, computed again."""
    gate, new, _ = activations
    found = [layout.tall(layout.state(layout.of.optional(FIRST_CELL)))]
    taken = gate.value(sums[0]) * new.value(sums[3])
    for kept, more in zip(layout.each(gate.value(sums[2])), layout.each(taken), strict=True):
        found.append(kept * found[-1] + more)
    return layout.stacked(found[1:])


def _cell_walk(
    layout: Layout, by_cell: Sequence[Term], by_output: Term, of_state: Term, forget: Term
) -> tuple[Term, Term, Term]:
    """Return the gradients of each gate's sum, of the first hidden state, and of the first cell.

    Of what flows into the cell the input gate, the forget gate and the candidate get ``by_cell``, the cell before gets
    ``forget``; of what flows into the hidden state the output gate gets ``by_output``, and the cell ``of_state``.
    """
    of = layout.of
    every, to_cell, behind, cell = layout.flows()
    # By what flows into the cell behind a step that cell's own part comes to this one; into the last one, all of it.
    passed = Term(of, of.filled(1.0, layout.dtype, (1, *forget.shape[1:])))
    if layout.steps > 1:
        passed = layout.stacked([forget.part(0, 1, layout.steps), passed])
    factors = layout.rows(by_cell[0], by_output, by_cell[1], by_cell[2])
    is_output = Term(of, of.constant(np.array([[False], [True], [False], [False]])))
    matrix, cell, found = layout.weights(2), layout.tall(cell), list[Term]()
    given = [factors, passed, of_state, every]
    if layout.lengths is not None:
        given.append(layout.tall(to_cell))
    for gates, kept, shown, flow, *ends in zip(*(layout.each(each)[::-1] for each in given), strict=True):
        state = layout.tall(behind + flow)
        cell = kept * cell + shown * state
        for end in ends:
            cell = cell + end
        found.append(gates * FORMULAS.where(is_output, state, cell))
        behind = layout.flat(found[-1]) @ matrix
    first = layout.each(forget)[0] * cell
    return layout.stacked(found[::-1]), behind, layout.flat(first)
