"""Lowering of RNN, GRU and LSTM: one kernel for all steps, which may need one product of all inputs before."""

from __future__ import annotations

from functools import partial
from math import inf, isfinite, prod

import numpy as np

from opbuild.families.recurrent import family as recurrences
from opbuild.families.recurrent.family import GATES, PANEL, RecurrentForm
from opbuild.graph.recurrent import Activation, cell_of
from opbuild.graph.types import Array, Node, TensorType
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, call_of, serves
from opbuild.lowering.matrix import Product, emit_product
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import broadcast, dense_as, narrowed, transposed, viewed_as, with_inner_stride
from opbuild.operations.expression import ACC, Expression, arg, const
from opbuild.operations.table import of_onnx

ENDLESS = np.iinfo(np.int32).max
"""The length of sequences of which none is given."""


@serves("RNN", "GRU", "LSTM")
def recurrent(lowering: Lowering, node: Node) -> None:
    """Lower a recurrent layer."""
    dtype = lowering.type(node.inputs[0]).dtype
    if dtype not in recurrences.FAMILY.types:
        raise NotServedError(f"{node.op_type} of {dtype} has no kernel")
    layer = _RecurrentLayer(lowering, node, (*node.inputs, *("",) * (8 - len(node.inputs))))
    layer.check()
    layer.emit()


@serves("opbuild.IntegerLSTM")
def integer_lstm(lowering: Lowering, node: Node) -> None:
    """Lower an LSTM whose recurrence weights are of int8."""
    projected, weights, scales, *others = (*node.inputs, *("",) * (7 - len(node.inputs)))
    if not lowering.is_constant(weights):
        raise NotServedError("a kernel takes recurrence weights of int8 that are known when the network is built")
    layer = _IntegerLayer(lowering, node, (projected, "", weights, "", *others), scales)
    layer.check()
    layer.emit()


class _RecurrentLayer:
    """A node, its extents and its operands as kernels take them: row-major ``(T, D, B, ...)``.

    ``T`` are steps, ``D`` directions, ``B`` sequences.
    """

    group = 0

    def __init__(self, lowering: Lowering, node: Node, names: tuple[str, ...]) -> None:
        self.lowering, self.node, self.cell = lowering, node, cell_of(node)
        self.x, self.w, self.r, self.b, self.lengths, self.h, self.c, self.p = names
        first, second, self.size = lowering.type(self.x).shape
        self.steps, self.batch = (second, first) if self.cell.batch_first else (first, second)
        self.kind = self.cell.kind
        self.gates, self.directions = GATES[self.kind], len(self.cell.reverse)
        self.hidden = max(lowering.type(self.r).shape[1:]) // self.gates
        self.linear = self.kind == "GRU" and self.cell.linear_before_reset
        # The cell goes into LSTM's last activation as it is: the text leaves open whether that one is clipped, too.
        clips = [self.cell.clip, self.cell.clip, inf]
        self.activations = [
            tuple(_expression(*each) for each in zip(row, clips, strict=False)) for row in self.cell.activations
        ]

    def check(self) -> None:
        """Leave to the host sizes that are too large, and lengths that no sequence can have, which it refuses."""
        projected = TensorType("float32", (self.steps, self.batch, self.directions * self.gates * self.hidden))
        if projected.problem:
            raise NotServedError(f"what the inputs add to the gates: {projected.problem}")
        lengths = self.lowering.constant(self.lengths)
        if lengths is not None and lengths.size and not 0 <= lengths.min() <= lengths.max() <= self.steps:
            raise NotServedError("sequence_lens has values outside the sequences")

    def emit(self) -> None:
        """Emit the calls."""
        every, *states = self._outputs()
        kept = self._gradient_places()
        if 0 in (self.steps, self.batch, self.hidden):
            for state in states:
                self._clear(state)
            return
        calls = self._calls(fused=True) or self._calls(fused=False)
        is_fused = calls[0][-1].inputs[0].name == "x"
        inputs = [self._x(), self._weights(self.w), self._gate_biases()] if is_fused else [self._projected()]
        inputs += [*self._recurrence(), self._lengths()]
        for name, state in zip((self.h, self.c), states, strict=False):
            inputs += [self._initial(name), state]
        if self.p:
            inputs.append(dense_as(self.lowering.dense(self.p), (self.directions, 3, self.hidden)))
        if self.linear:
            inputs.append(self._linear_bias())
        shape = (self.steps, self.directions, self.batch, self.hidden)
        outputs = [every, *(broadcast(state, shape) for state in states), *kept]
        for start, count, desc in calls:
            self._call(desc, start, inputs, outputs, count)

    def _calls(self, fused: bool) -> list[tuple[int, int, OpDesc]]:
        """Return the first direction and the number of those that each kernel computes, and the kernel.

        None where fused ones are slower, or would read weights at each step that are packed each time.
        """
        lowering = self.lowering
        if fused and not lowering.is_constant(self.w):
            return []
        extents = (self.batch, self.size, -(-self.hidden // PANEL))
        variant = lowering.choose(recurrences.FAMILY, self.kind, self.linear, fused, *extents)
        if variant is None:
            return []
        return [
            (start, count, recurrences.describe(self._form(directions, start, fused), variant))
            for start, count, directions in self._kernel_parts()
        ]

    def _kernel_parts(self) -> list[tuple[int, int, str]]:
        """Return the first direction, the number and the name of those that one kernel computes."""
        each = ["reverse" if reverse else "forward" for reverse in self.cell.reverse]
        if len(each) == 1 or len(set(self.cell.activations)) == 1:
            return [(0, len(each), each[0] if len(each) == 1 else "both")]
        return [(number, 1, name) for number, name in enumerate(each)]

    def _form(self, directions: str, start: int, fused: bool) -> RecurrentForm:
        return RecurrentForm(
            self.kind,
            directions,
            self.activations[start],
            self.linear,
            self.kind == "LSTM" and self.cell.coupled,
            bool(self.p),
            fused,
            bool(self._kept_name),
            self.lowering.impl_mode(self.node),
            self.group,
        )

    def _call(self, desc: OpDesc, start: int, inputs: list[Plain], outputs: list[Plain], count: int) -> None:
        operands = []
        for operand, value in zip(desc.operands, (*inputs, *outputs), strict=True):
            axis = int(operand.name in ("projected", "every", "hidden", "cell") or operand.name.startswith("kept"))
            is_whole = operand.name in ("lengths", "x")
            part = value if is_whole else narrowed(value, axis, start, count)
            operands.append(part if is_whole else with_inner_stride(part, 1))
        self.lowering.emit(desc, operands, self.node)

    # -- operands -----------------------------------------------------------------------------------------------------

    def _outputs(self) -> list[Plain]:
        """Return the places of all hidden states and of the last ones; memory of its own for those nobody asked for."""
        lowering, node = self.lowering, self.node
        count = 3 if self.kind == "LSTM" else 2
        names = (*node.outputs, *("",) * (count - len(node.outputs)))
        states = []
        for name in names[1:count]:
            kind = TensorType("float32", (self.directions, self.batch, self.hidden))
            value = lowering.new_plain(name) if name else lowering.temporary(kind)
            states.append(transposed(value, (1, 0, 2)) if name and self.cell.batch_first else value)
        return [self._hidden_place(names[0]), *states]

    @property
    def _kept_name(self) -> str:
        """The name of the values that a gradient needs; empty if nobody asked for them."""
        return (*self.node.outputs, *("",) * 4)[3]

    def _gradient_places(self) -> list[Plain]:
        """Return the place of each part of it ``(T, D, B, H)``; none if nobody asked for it."""
        if not self._kept_name:
            return []
        whole, hidden = self.lowering.new_plain(self._kept_name), self.hidden
        return [narrowed(whole, 3, number * hidden, hidden) for number in range(self.gates + 1)]

    def _hidden_place(self, name: str) -> Plain:
        """Return the place of all hidden states."""
        lowering = self.lowering
        if not name:
            once = lowering.temporary(TensorType("float32", (self.directions, self.batch, self.hidden)))
            return broadcast(once, (self.steps, *once.shape))
        if self.cell.batch_first:
            return transposed(lowering.new_plain(name), (1, 2, 0, 3))
        if self.directions == 1 or name in lowering.graph.outputs:
            return lowering.new_plain(name)
        # Both directions of a step side by side, as what follows takes them: their transpose is no copy then.
        shape = (self.steps, self.batch, self.directions, self.hidden)
        value = transposed(lowering.temporary(TensorType("float32", shape)), (0, 2, 1, 3))
        lowering.bind(name, value)
        return value

    def _clear(self, state: Plain) -> None:
        if prod(state.shape):
            self.lowering.copy(broadcast(self._zeros(1), state.shape), state, self.node.name)

    def _zeros(self, count: int) -> Plain:
        return self.lowering.packed((), "zeros", (count,), "float32", lambda: np.zeros(count, np.float32))

    def _initial(self, name: str) -> Plain:
        """Return the first states ``(D, B, H)``."""
        if name:
            value = self.lowering.dense(name)
            return transposed(value, (1, 0, 2)) if self.cell.batch_first else value
        return broadcast(self._zeros(self.hidden), (self.directions, self.batch, self.hidden))

    def _lengths(self) -> Plain:
        if self.lengths:
            return self.lowering.plain(self.lengths)
        endless = self.lowering.packed((), f"[{ENDLESS}]", (1,), "int32", lambda: np.array([ENDLESS], np.int32))
        return viewed_as(endless, (self.batch,), (0,))

    def _x(self) -> Plain:
        """Return the inputs ``(T, B, I)``."""
        x = self.lowering.plain(self.x)
        return transposed(x, (1, 0, 2)) if self.cell.batch_first else x

    def _gate_biases(self) -> Plain:
        """Return the biases of the gates' products ``(D, G, H)``."""
        bias, shape = self._bias(), (self.directions, self.gates, self.hidden)
        return broadcast(self._zeros(self.hidden), shape) if bias is None else dense_as(bias, shape)

    def _projected(self) -> Plain:
        """Emit the product of all inputs and their weights, biases added; return it as ``(T, D, B, G, H)``."""
        lowering, columns = self.lowering, self.directions * self.gates * self.hidden
        x = lowering.plain(self.x)
        out = lowering.temporary(TensorType("float32", (*x.shape[:2], columns)))
        rhs = transposed(dense_as(lowering.dense(self.w), (columns, self.size)), (1, 0))
        bias = self._bias()
        operands = () if bias is None else (broadcast(bias, out.shape),)
        expression = ("add", ACC, arg(0)) if operands else ACC
        constant = (self.w, True) if lowering.is_constant(self.w) else None
        mode = lowering.impl_mode(self.node)
        emit_product(lowering, Product(x, rhs, out, expression, operands, self.node.name, constant, mode))
        split = dense_as(out, (*x.shape[:2], self.directions, self.gates, self.hidden))
        return transposed(split, (1, 2, 0, 3, 4) if self.cell.batch_first else (0, 2, 1, 3, 4))

    def _bias(self) -> Plain | None:
        """Return the bias of the inputs' products: ``(D * G * H)``, the sum of both halves of the biases.

        A GRU that multiplies before it resets adds the recurrence's bias of its last gate later.
        """
        if not self.b:
            return None
        lowering, rows, last = self.lowering, self.gates * self.hidden, self.hidden if self.linear else 0
        if lowering.is_constant(self.b):

            def pack() -> Array:
                both = np.asarray(lowering.constant(self.b))
                total = both[:, :rows].copy()
                total[:, : rows - last] += both[:, rows : 2 * rows - last]
                return total.reshape(-1)

            recipe = f"sum of halves but of the last {last}"
            return lowering.packed((self.b,), recipe, (self.directions * rows,), "float32", pack)
        both = lowering.dense(self.b)
        total = lowering.temporary(TensorType("float32", (self.directions, rows)))
        parts = [narrowed(value, 1, start, rows - last) for value, start in ((both, 0), (both, rows), (total, 0))]
        make = partial(call_of("Expression"), dtypes=("float32",) * 3, choose=lowering.choose)
        lowering.emit(partial(make, expression=("add", arg(0), arg(1))), parts, self.node)
        if last:
            source, target = (narrowed(value, 1, rows - last, last) for value in (both, total))
            lowering.copy(source, target, self.node.name)
        return dense_as(total, (self.directions * rows,))

    def _linear_bias(self) -> Plain:
        """Return the bias that a GRU adds to its last gate's product before it resets: ``(D, H)``."""
        if not self.b:
            return broadcast(self._zeros(self.hidden), (self.directions, self.hidden))
        return narrowed(self.lowering.dense(self.b), 1, 5 * self.hidden, self.hidden)

    def _recurrence(self) -> list[Plain]:
        """Return the recurrence weights, as the kernel takes them."""
        return [self._weights(self.r)]

    def _weights(self, name: str) -> Plain:
        """Return weights in panels, ``(D, H / 16, K, G, 16)`` of K inputs or states; lanes beyond H hold anything."""
        lowering, hidden, gates, count = self.lowering, self.hidden, self.gates, self.lowering.type(name).shape[-1]
        panels = -(-hidden // PANEL)
        shape = (self.directions, panels, count, gates, PANEL)
        if lowering.is_constant(name):

            def pack() -> Array:
                matrices = np.asarray(lowering.constant(name)).reshape(self.directions, gates, hidden, count)
                full = np.zeros((self.directions, gates, panels * PANEL, count), matrices.dtype)
                full[:, :, :hidden] = matrices
                parts = full.reshape(self.directions, gates, panels, PANEL, count)
                return np.ascontiguousarray(parts.transpose(0, 2, 4, 1, 3))

            recipe = f"gates in panels of {PANEL}"
            return lowering.packed((name,), recipe, shape, "float32", pack)
        target = lowering.temporary(TensorType("float32", shape))
        source = lowering.dense(name)
        steps = (gates * hidden * count, PANEL * count, 1, hidden * count, count)
        whole, rest = divmod(hidden, PANEL)
        if whole:
            part = viewed_as(source, (self.directions, whole, count, gates, PANEL), steps)
            lowering.copy(part, narrowed(target, 1, 0, whole), self.node.name)
        if rest:
            start = whole * PANEL * count
            part = Plain(source.storage, (self.directions, 1, count, gates, rest), steps, source.offset + start)
            last = narrowed(narrowed(target, 1, whole, 1), 4, 0, rest)
            lowering.copy(part, last, self.node.name)
        return target


class _IntegerLayer(_RecurrentLayer):
    """An LSTM whose inputs were multiplied before, with recurrence weights of int8 ``(D, H, G * H)``."""

    def __init__(self, lowering: Lowering, node: Node, names: tuple[str, ...], scales: str) -> None:
        super().__init__(lowering, node, names)
        self.scales, self.group = scales, lowering.machine.dot

    def _projected(self) -> Plain:
        """Return the given sums of the inputs' products ``(T, D, B, G, H)``."""
        given = dense_as(
            self.lowering.dense(self.x), (self.steps, self.batch, self.directions, self.gates, self.hidden)
        )
        return transposed(given, (0, 2, 1, 3, 4))

    def _recurrence(self) -> list[Plain]:
        """Return the weights in panels of groups ``(D, H / 16, K / group, G, 16, group)``, their scales and sums."""
        lowering, gates, hidden, group = self.lowering, self.gates, self.hidden, self.group
        panels, groups = -(-hidden // PANEL), -(-hidden // group)
        shape = (self.directions, panels, groups, gates, PANEL, group)

        def pack() -> Array:
            full = np.zeros((self.directions, groups * group, gates, panels * PANEL), np.int8)
            given = np.asarray(lowering.constant(self.r))
            full[:, :hidden, :, :hidden] = given.reshape(self.directions, hidden, gates, hidden)
            parts = full.reshape(self.directions, groups, group, gates, panels, PANEL)
            return np.ascontiguousarray(parts.transpose(0, 4, 1, 3, 5, 2))

        def add_up() -> Array:
            sums: Array = np.asarray(lowering.constant(self.r)).sum(1, np.int32)
            return sums

        each = (self.directions, gates, hidden)
        weights = lowering.packed((self.r,), f"gates in panels of {PANEL} by groups of {group}", shape, "int8", pack)
        sums = lowering.packed((self.r,), "sums along K", (self.directions, gates * hidden), "int32", add_up)
        return [weights, dense_as(lowering.dense(self.scales), each), dense_as(sums, each)]


def _expression(activation: Activation, clip: float) -> Expression:
    """Return an activation as an expression over the accumulator, which is bounded first."""
    x: Expression = ("clip", ACC, const(-clip), const(clip)) if isfinite(clip) else ACC
    alpha, beta = const(activation.alpha), const(activation.beta)
    if activation.name == "Affine":
        return ("add", ("mul", alpha, x), beta)
    if activation.name == "ScaledTanh":
        return ("mul", alpha, ("tanh", ("mul", beta, x)))
    found = of_onnx(activation.name, {})
    if found is None:
        raise NotServedError(f"the activation {activation.name} has no kernel")
    onnx, operation = found
    return (operation.name, x, *(alpha, beta)[: len(onnx.parameters)])
