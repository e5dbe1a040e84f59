"""Functions of opbuild's own, for operators whose function in ONNX's schemas there is not, or loses digits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opbuild.frontend.onnx_messages import FunctionProto
from opbuild.frontend.training import adagrad, adam, momentum
from opbuild.graph.types import Node, TensorType

MakeFunction = Callable[[Node, Sequence[Any]], str | None]
"""Returns the text of a node's function for the types of its inputs, without its head; None if it has none."""

_HEAD = '<opset_import: ["" : 21], domain: "">'


def own_function(node: Node, types: Sequence[TensorType | None]) -> FunctionProto | None:
    """Return the function of a node, None if there is none."""
    make = OWN_FUNCTIONS.get((node.domain, node.op_type))
    text = make(node, types) if make is not None else None
    if text is None:
        return None
    from onnx import parser

    return parser.parse_function(_HEAD + text)


def _layer_normalization(node: Node, types: Sequence[Any]) -> str | None:
    """Compute the mean and the inverse deviation, which no kernel gives, beside the normalisation."""
    x = types[0]
    if not any(node.outputs[1:]) or x.dtype == "float64":
        return None
    first, epsilon = int(node.attrs.get("axis", -1)), float(node.attrs.get("epsilon", 1e-5))
    axes = list(range(first % len(x.shape), len(x.shape)))
    inputs = "X, Scale, B" if len(types) > 2 and types[2] is not None else "X, Scale"
    return f"""
    LayerNormalization (X, Scale, B) => (Y, Mean, InvStdDev) {{
        Y = LayerNormalization <axis: int = {first}, epsilon: float = {epsilon!r}> ({inputs})
        Wide = Cast <to: int = 1> (X)
        Axes = Constant <value_ints: ints = {axes}> ()
        Mean = ReduceMean (Wide, Axes)
        Centred = Sub (Wide, Mean)
        Squares = Mul (Centred, Centred)
        Variance = ReduceMean (Squares, Axes)
        Epsilon = Constant <value_float: float = {epsilon!r}> ()
        Positive = Add (Variance, Epsilon)
        Deviation = Sqrt (Positive)
        InvStdDev = Reciprocal (Deviation)
    }}"""


_TRAINING = "ai.onnx.preview.training"

OWN_FUNCTIONS: dict[tuple[str, str], MakeFunction] = {
    ("", "LayerNormalization"): _layer_normalization,
    (_TRAINING, "Adagrad"): adagrad,
    (_TRAINING, "Adam"): adam,
    (_TRAINING, "Momentum"): momentum,
}
"""What makes the function of an operator, by its domain and type; it takes the place of that in ONNX's schemas."""
