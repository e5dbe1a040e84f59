"""Recurrent layers in 16 bits, whose gates and states are computed in float32."""

from __future__ import annotations

from opbuild.graph.passes.composite.rewrite import KeptError, Rewrite
from opbuild.graph.passes.rewriter import Rewriter
from opbuild.graph.types import Node, TensorType

_NARROW = ("float16", "bfloat16")


def _in_float32(to: Rewriter, node: Node) -> None:
    """Convert weights once, inputs and outputs at each call: states between steps are not rounded."""
    dtype = to.types[node.inputs[0]].dtype
    if dtype not in _NARROW:
        raise KeptError
    inputs = tuple(
        to.add(node, "Cast", (name,), to="float32") if name and to.types[name].dtype == dtype else name
        for name in node.inputs
    )
    outputs = tuple(name and to.fresh(f"{name}/wide") for name in node.outputs)
    pairs = [(name, wide) for name, wide in zip(node.outputs, outputs, strict=True) if name]
    to.types.update({wide: TensorType("float32", to.types[name].shape) for name, wide in pairs})
    to.nodes.append(node.with_(inputs=inputs, outputs=outputs))
    for name, wide in pairs:
        to.add(node, "Cast", (wide,), name, to=dtype)


REWRITES: dict[str, Rewrite] = dict.fromkeys(("RNN", "GRU", "LSTM"), _in_float32)
