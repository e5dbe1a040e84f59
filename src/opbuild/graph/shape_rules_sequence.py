"""Shape rules of operators along sequences: RNN, GRU, LSTM, and Fourier transforms."""

from __future__ import annotations

from opbuild.graph.recurrent import GATES, cell_of
from opbuild.graph.shape_rules import ShapeCall, Types, rule, same_dtype
from opbuild.graph.types import TensorType

_PEEPHOLES = 3


@rule("RNN", "GRU", "LSTM")
def recurrent(call: ShapeCall) -> Types:
    """All hidden states, the last one and, for LSTM, the last cell.

    Of a gradient LSTM and linear GRU have a fourth output, which ONNX does not know: what goes into the activations of
    the gates, and the cell, or what is reset.
    """
    kind = call.node.op_type
    cell = cell_of(call.node)
    directions, gates = len(cell.reverse), GATES[kind]
    dtype = same_dtype(call, 0, 4)
    x, r = call.rank(0, 3), call.rank(2, 3)
    steps, batch = (x[1], x[0]) if cell.batch_first else (x[0], x[1])
    hidden = int(call.attr("hidden_size", r[2]))
    state = (batch, directions, hidden) if cell.batch_first else (directions, batch, hidden)
    call.expect(1, (directions, gates * hidden, x[2]))
    call.expect(2, (directions, gates * hidden, hidden))
    call.expect(3, (directions, 2 * gates * hidden))
    call.expect(4, (batch,))
    call.expect(5, state)
    if kind == "LSTM":
        call.expect(6, state)
        call.expect(7, (directions, _PEEPHOLES * hidden))
    every = (batch, steps, directions, hidden) if cell.batch_first else (steps, directions, batch, hidden)
    kept = (steps, directions, batch, (gates + 1) * hidden)
    return tuple(TensorType(dtype, each) for each in (every, state, state, kept))


@rule("DFT")
def transform(call: ShapeCall) -> Types:
    """One axis becomes the transform's length, or the part of it that is not mirrored."""
    x = list(call.rank(0, least=2))
    inverse, onesided = bool(call.attr("inverse", 0)), bool(call.attr("onesided", 0))
    if call.has(2) and call.constants[2] is None and not call.has(1) and not onesided:
        return (TensorType(call.dtype(0), (*x[:-1], 2)),)  # whichever axis it is
    chosen = call.attr("axis", None)
    axis = call.axis(int(call.ints(2)[0] if call.has(2) else -2 if chosen is None else chosen), len(x))
    if axis == len(x) - 1:
        call.fail("its axis is the one of a number's parts")
    mirrored = inverse and onesided
    if mirrored and x[-1] != 2:
        call.fail("half of a real result is inverted from complex numbers")
    length = call.ints(1)[0] if call.has(1) else 2 * (x[axis] - 1) if mirrored else x[axis]
    if length < 1:
        call.fail(f"its length is {length}")
    x[axis] = length // 2 + 1 if onesided and not inverse else length
    return (TensorType(call.dtype(0), (*x[:-1], 1 if mirrored else 2)),)


@rule("STFT")
def short_time(call: ShapeCall) -> Types:
    """A transform of each frame; a real signal may lack the last dimension."""
    batch, extent = call.rank(0, 2, 3)[:2]
    (step,) = call.ints(1)
    length = call.ints(3)[0] if call.has(3) else call.shape(2)[0] if call.has(2) else extent
    if step < 1 or not 1 <= length <= extent:
        call.fail(f"frames of {length} elements, every {step}, do not fit a signal of {extent}")
    results = length // 2 + 1 if call.attr("onesided", 1) else length
    return (TensorType(call.dtype(0), (batch, (extent - length) // step + 1, results, 2)),)
