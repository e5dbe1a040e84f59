"""Tensors of recurrent layers as their gradients are written with: in the order of steps, whatever the layout.

``(T, D, B, G, H)``: steps in the order in which they are taken, directions, sequences, gates, units; without gates
``(T, D, B, N)``. A sequence that ends early is padded behind its end in each direction: what flows into its last state
flows into its last step.
"""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.graph.gradients.broadcasting import cut, filled, total
from opbuild.graph.gradients.registry import Call
from opbuild.graph.gradients.terms import Term
from opbuild.graph.graph_builder import Value
from opbuild.graph.recurrent import GATES, Cell

END = -(2**31)


class Layout:
    """Some directions of a layer.

    Args:
        call: The layer.
        cell: Its attributes.
        start: The first direction.
        count: How many.
    """

    def __init__(self, call: Call, cell: Cell, start: int, count: int) -> None:
        self.call, self.of, self.cell = call, call.of, cell
        self.start, self.directions = start, count
        self.reverse = cell.reverse[start : start + count]
        self.gates, self.hidden = GATES[cell.kind], call.input(2).shape[-1]
        x = call.input(0)
        self.dtype = x.dtype
        self.steps, self.batch, self.size = [x.shape[axis] for axis in ((1, 0, 2) if cell.batch_first else (0, 1, 2))]
        given = call.optional(4)
        self.lengths = None if given is None else self.of.cast(given, "int64")

    # -- what is read -------------------------------------------------------------------------------------------------

    def inputs(self) -> Term:
        """Return each step's inputs ``(T, D, B, I)``; zeros behind a sequence's end, where anything may stand."""
        x = self.call.input(0)
        x = self.of.transpose(x, (1, 0, 2)) if self.cell.batch_first else x
        one = self.of.reshape(x, (self.steps, 1, self.batch, self.size))
        wide = one if self.directions == 1 else self.of("Concat", *(one,) * self.directions, axis=1)
        return self._counting(self.ordered(wide))

    def weights(self, index: int) -> Value:
        """Return these directions of an input ``(D, ...)``."""
        return cut(self.of, self.call.input(index), 0, self.start, self.start + self.directions)

    def parts(self, index: int, count: int) -> list[Term]:
        """Return vectors of an input ``(D, count * H)``, each as ``(D, 1, 1, H)``; zeros if it is absent."""
        if self.call.optional(index) is None:
            return [Term(self.of, self.of.constant(0.0, self.dtype))] * count
        given, shape = self.weights(index), (self.directions, 1, 1, self.hidden)
        ends = [(each * self.hidden, (each + 1) * self.hidden) for each in range(count)]
        return [Term(self.of, self.of.reshape(cut(self.of, given, 1, *each), shape)) for each in ends]

    def biases(self) -> tuple[list[Term], list[Term]]:
        """Return the biases of each gate, those of inputs and those of states."""
        found = self.parts(3, 2 * self.gates)
        return found[: self.gates], found[self.gates :]

    def state(self, value: Value | None) -> Term:
        """Return these directions of a state, or of its gradient, as ``(1, D, B, H)``; zeros if it is absent."""
        shape = (1, self.directions, self.batch, self.hidden)
        if value is None:
            return Term(self.of, filled(self.of, 0.0, self.dtype, shape))
        moved = self.of.transpose(value, (1, 0, 2)) if self.cell.batch_first else value
        own = cut(self.of, moved, 0, self.start, self.start + self.directions)
        return Term(self.of, self.of.reshape(own, shape))

    def every(self, value: Value) -> Term:
        """Return these directions of all hidden states, or of their gradients, as ``(T, D, B, H)``."""
        moved = self.of.transpose(value, (1, 2, 0, 3)) if self.cell.batch_first else value
        return Term(self.of, self.ordered(cut(self.of, moved, 1, self.start, self.start + self.directions)))

    def hidden_states(self) -> Term:
        """Return the hidden state before each step."""
        found = self.call.outputs[0]
        if found is None:
            found = self._asked_again(len(self.call.outputs))[0]
        return self.shifted(self.state(self.call.optional(5)), self.every(found))

    def kept(self) -> list[Term]:
        """Return what goes into the activation of each gate, and the cell, or what a linear GRU resets.

        The layer is asked to give it, too.
        """
        given = cut(self.of, self._asked_again(4)[3], 1, self.start, self.start + self.directions)
        return self.split(Term(self.of, self.ordered(given)))

    def _asked_again(self, count: int) -> tuple[Value, ...]:
        """Return more outputs of the layer; a pass makes one layer of both."""
        return self.of.several(self.call.node.op_type, count, *self.call.inputs, **self.call.node.attrs)

    def flows(self) -> tuple[Term, Term, Term, Term]:
        """Return what flows into each step's hidden state and cell, and into the last ones from behind.

        Where sequences have lengths, that is among what flows into each one's last step.
        """
        given = (*self.call.gradients, None, None)
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
        parts = [cut(self.of, x, 1, number, number + 1) for number in range(self.directions)]
        moved = [self._backwards(part) if back else part for part, back in zip(parts, self.reverse, strict=True)]
        return moved[0] if len(moved) == 1 else self.of("Concat", *moved, axis=1)

    def _backwards(self, x: Value) -> Value:
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
            self.call.refuse("sequences have no lengths")
        numbers = of.reshape(of.ints(*range(first, self.steps + first)), (self.steps, 1, 1, 1))
        return of(how, numbers, of.reshape(self.lengths, (1, 1, self.batch, 1)))

    def each(self, x: Term) -> list[Term]:
        """Return the steps of a tensor, each with an extent of 1; one that has no steps is the same at each."""
        if x.value.shape[0] != self.steps or self.steps == 1:
            return [x] * self.steps
        sizes = self.of.ints(*(1,) * self.steps)
        return [Term(self.of, part) for part in self.of.several("Split", self.steps, x.value, sizes, axis=0)]

    def stacked(self, steps: Sequence[Term]) -> Term:
        """Return steps in one tensor."""
        return self._joined(steps, 0) if len(steps) > 1 else steps[0]

    def shifted(self, first: Term, every: Term) -> Term:
        """Return what stood before each step, given what stood before the first and behind each."""
        if self.steps == 1:
            return first
        return self._joined([first, Term(self.of, cut(self.of, every.value, 0, 0, self.steps - 1))], 0)

    def _joined(self, parts: Sequence[Term], axis: int) -> Term:
        return Term(self.of, self.of("Concat", *(each.value for each in parts), axis=axis))

    # -- gates --------------------------------------------------------------------------------------------------------

    def split(self, x: Term) -> list[Term]:
        """Return the gates of ``(T, D, B, G * H)``, each ``(T, D, B, 1, H)``."""
        shape = (*x.value.shape[:3], 1, self.hidden)
        ends = range(0, x.value.shape[3], self.hidden)
        return [self._shaped(Term(self.of, cut(self.of, x.value, 3, at, at + self.hidden)), shape) for at in ends]

    def rows(self, *gates: Term) -> Term:
        """Return gates side by side."""
        return self._joined(gates, 3)

    def row(self, x: Term, start: int, end: int) -> Term:
        """Return some gates."""
        return Term(self.of, cut(self.of, x.value, 3, start, end))

    def flat(self, x: Term) -> Term:
        """Return ``(T, D, B, G, H)`` as ``(T, D, B, G * H)``."""
        shape = x.value.shape
        return self._shaped(x, (*shape[:3], shape[3] * shape[4]))

    def tall(self, x: Term) -> Term:
        """Return ``(T, D, B, H)`` as ``(T, D, B, 1, H)``."""
        return self._shaped(x, (*x.value.shape[:3], 1, self.hidden))

    def _shaped(self, x: Term, shape: Sequence[int]) -> Term:
        return Term(self.of, self.of.reshape(x.value, shape))

    # -- products -----------------------------------------------------------------------------------------------------

    def step_times(self, x: Term, matrix: Value) -> Term:
        """Return one step's product with a matrix of each direction: ``(1, D, B, N)``, ``(D, N, M)``."""
        return Term(self.of, self.of("MatMul", x.value, matrix))

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
        return total(self.of, x.value, (0, 2))

    # -- what is given back -------------------------------------------------------------------------------------------

    def of_inputs(self, slopes: Term) -> Value:
        """Return the gradient of the layer's inputs from that of each direction's, ``(T, D, B, I)``."""
        both = total(self.of, self.ordered(slopes.value), (1,))
        return self.of.transpose(both, (1, 0, 2)) if self.cell.batch_first else both

    def of_state(self, flow: Term) -> Value:
        """Return the gradient of a first state from ``(1, D, B, H)``."""
        own = self.of.reshape(flow.value, (self.directions, self.batch, self.hidden))
        return self.of.transpose(own, (1, 0, 2)) if self.cell.batch_first else own
