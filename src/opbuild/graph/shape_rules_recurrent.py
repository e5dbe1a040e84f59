"""Shape rules of recurrent networks: RNN, GRU and LSTM."""

from __future__ import annotations

from opbuild.graph.recurrent import GATES, cell_of
from opbuild.graph.shape_rules import Call, Types, rule, same_dtype
from opbuild.graph.types import TensorType

_PEEPHOLES = 3


@rule("RNN", "GRU", "LSTM")
def recurrent(call: Call) -> Types:
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
