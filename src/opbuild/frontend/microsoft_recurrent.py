"""com.microsoft's recurrent layer with quantised weights, as ONNX's own."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.types import Node


@writes("DynamicQuantizeLSTM")
def _dynamic_quantize_lstm(of: Rewriting) -> Sequence[Node]:
    """DynamicQuantizeLSTM: an LSTM whose weights are dequantised when the network is built.

    ONNX Runtime quantises inputs and hidden states at each step besides; that they are not here makes results closer
    to those of float32.
    """
    weights = []
    for index, scale, zero in ((1, 8, 9), (2, 10, 11)):
        wide = of("Cast", of.input(index), to=1)
        parameters = (of.input(scale), of("Cast", of.input(zero), to=1))
        # One number a direction, or one a column of it.
        spread, moved = (of.reshape(each, (*of.shape(scale)[:1], 1, -1)) for each in parameters)
        weights.append(of("Transpose", of("Mul", of("Sub", wide, moved), spread), perm=(0, 2, 1)))
    others = [of.input(index) if of.has(index) else "" for index in range(3, 8)]
    of.write("LSTM", (of.input(0), *weights, *others), of.node.outputs, of.node.attrs)
    return of.nodes
