"""Operators of the operator sets 1 to 6, rewritten to the form that they have in operator set 7.

Those sets had attributes that said which inputs could be overwritten (``consumed_inputs``), whether a network was
trained or run (``is_test``), and how an elementwise operator's second operand was aligned (``broadcast``, ``axis``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.errors import InvalidModelError, ShapeError, UnsupportedOperatorError
from opbuild.frontend.upgrade_steps import Upgrade, changed, moved, replaced
from opbuild.graph.graph_builder import Scope
from opbuild.graph.shape_rules import ONNX_NUMBERS
from opbuild.graph.types import Node


def to_set_7(node: Node, opset: int, scope: Scope) -> Sequence[Node]:
    """Return nodes of operator set 7 that compute what a node computes in an older one.

    Raises:
        UnsupportedOperatorError: If no newer operator set can express it.
        ModelError: If its operands do not fit as the older operator set demands.
    """
    node = replaced(node, ("consumed_inputs",)) if "consumed_inputs" in node.attrs else node
    for before, step in _STEPS.get(node.op_type, ()):
        if opset < before:
            return step(node, scope)
    return (node,)


def _reshaped(node: Node, index: int, shape: Sequence[int], scope: Scope) -> Sequence[Node]:
    """Return a node that reads an input in another shape, after the node that reshapes it."""
    other = scope.fresh(f"{node.name}/aligned")
    wanted = scope.constant(np.array(shape, np.int64))
    inputs = (*node.inputs[:index], other, *node.inputs[index + 1 :])
    return (
        Node("Reshape", (node.inputs[index], wanted), (other,), {}, f"{node.name}/align"),
        node.with_(inputs=inputs, proto=None),
    )


def _elementwise(node: Node, scope: Scope) -> Sequence[Node]:
    """The second operand was aligned at ``axis``, at the end without one, and only if ``broadcast`` was set."""
    left, right = (scope.type_of(name).shape for name in node.inputs[:2])
    plain = replaced(node, ("axis", "broadcast"))
    if left == right:
        return (plain,)
    where = f"{node.op_type} node {node.name!r}: its second operand {list(right)}"
    if not node.attrs.get("broadcast", 0):
        raise ShapeError(
            f"{where} has not the shape {list(left)} of the first, and it does not broadcast",
            "set the attribute broadcast=1, or export the model with operator set 7 or newer",
        )
    aligned: tuple[int, ...] = ()
    if int(np.prod(right)) != 1:
        first = int(node.attrs.get("axis", len(left) - len(right)))
        first += len(left) if first < 0 else 0
        aligned = (*right, *(1 for _ in left[first + len(right) :]))
        part = left[max(first, 0) : first + len(right)]
        if len(part) != len(right) or any(mine not in (1, theirs) for mine, theirs in zip(right, part, strict=True)):
            raise ShapeError(
                f"{where} is not a part of {list(left)} from dimension {first} on", "check the attribute axis"
            )
    return (plain,) if aligned == right else _reshaped(plain, 1, aligned, scope)


def _prelu(node: Node, scope: Scope) -> Sequence[Node]:
    """A slope for each channel was a vector; now it broadcasts as numpy's arrays do."""
    rank, slope = len(scope.type_of(node.inputs[0]).shape), scope.type_of(node.inputs[1]).shape
    if len(slope) != 1 or slope == (1,) or rank <= 2:
        return (node,)
    return _reshaped(node, 1, (slope[0], *(1 for _ in range(rank - 2))), scope)


def _batch_normalization(node: Node, scope: Scope) -> Sequence[Node]:
    """What is run in training had to say so by its outputs alone from operator set 7 on."""
    tested = bool(node.attrs.get("is_test", 0))
    if not tested and len(node.outputs) < 2:
        node = node.with_(outputs=(*node.outputs, scope.fresh(f"{node.name}/mean"), scope.fresh(f"{node.name}/var")))
    outputs = node.outputs[:1] if tested else node.outputs
    return (replaced(node, ("is_test",)).with_(outputs=outputs),)


def _dropout(node: Node, scope: Scope) -> Sequence[Node]:
    if not node.attrs.get("is_test", 0):
        raise UnsupportedOperatorError(
            f"Dropout node {node.name!r} is in training mode (is_test=0)", "export the model for inference (is_test=1)"
        )
    return (replaced(node, ("is_test",)),)


def _cast(node: Node, scope: Scope) -> Sequence[Node]:
    """The type was named."""
    name = node.text("to", "").lower()
    dtype = {"float": "float32", "double": "float64"}.get(name, name)
    number = ONNX_NUMBERS.get(dtype)
    if number is None:
        raise InvalidModelError(f"Cast node {node.name!r}: {name!r} is no element type", "export the model again")
    return (replaced(node, to=number),)


def _reshape(node: Node, scope: Scope) -> Sequence[Node]:
    return moved(node if "shape" in node.attrs else replaced(node, shape=()), scope, ("shape",))


def _split(node: Node, scope: Scope) -> Sequence[Node]:
    """Sizes could be an input, of the type of what is split."""
    if len(node.inputs) < 2 or not node.inputs[1]:
        return (node,)
    raise UnsupportedOperatorError(
        f"Split node {node.name!r} has its sizes as an input, in operator set 1", "give them as the attribute split"
    )


def _tile(node: Node, scope: Scope) -> Sequence[Node]:
    """One axis was repeated: both it and the number of copies are inputs."""
    rank = len(scope.type_of(node.inputs[0]).shape)
    names = [scope.fresh(f"{node.name}/{part}") for part in ("here", "count", "more", "added", "repeats")]
    here, count, more, added, repeats = names
    places, one = scope.constant(np.arange(rank)), scope.constant(np.ones((), np.int64))
    parts = (
        ("Equal", (places, node.inputs[2]), here),
        ("Cast", (here,), count),
        ("Sub", (node.inputs[1], one), more),
        ("Mul", (count, more), added),
        ("Add", (added, one), repeats),
    )
    attrs = {"Cast": {"to": _INT64}}
    nodes = [Node(op_type, inputs, (output,), attrs.get(op_type, {}), output) for op_type, inputs, output in parts]
    return (*nodes, replaced(node, inputs=(node.inputs[0], repeats)))


_INT64 = 7
"""ONNX's number of the element type."""


def _upsample(node: Node, scope: Scope) -> Sequence[Node]:
    scales = (1.0, 1.0, float(node.attrs["height_scale"]), float(node.attrs["width_scale"]))
    return (replaced(node, ("height_scale", "width_scale"), scales=scales),)


def _norm(node: Node, scope: Scope) -> Sequence[Node]:
    """The power of a norm was a float."""
    power = float(node.attrs.get("p", 2.0))
    if not power.is_integer():
        raise UnsupportedOperatorError(
            f"{node.op_type} node {node.name!r} has the power {power}", "only whole powers are supported"
        )
    return (replaced(node, p=int(power)),)


def _defaults(**attrs: float) -> Upgrade:
    """Say what was the default."""
    return lambda node, scope: (replaced(node, **{**attrs, **node.attrs}),)


_BINARY = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")

_STEPS: dict[str, tuple[tuple[int, Upgrade], ...]] = {
    **dict.fromkeys(_BINARY, ((7, _elementwise),)),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), ((7, changed("output_sequence")),)),
    **dict.fromkeys(("GlobalLpPool", "LpPool"), ((2, _norm),)),
    "BatchNormalization": ((7, _batch_normalization),),
    "Cast": ((6, _cast),),
    "Concat": ((4, _defaults(axis=1)),),
    "Dropout": ((7, _dropout),),
    "Gemm": ((7, changed("broadcast")),),
    "PRelu": ((7, _prelu),),
    "Pad": ((2, lambda node, scope: (replaced(node, ("paddings",), pads=node.attrs["paddings"]),)),),
    "Reshape": ((5, _reshape),),
    "Selu": ((6, _defaults(alpha=1.6732, gamma=1.0507)),),
    "Split": ((2, _split),),
    "Tile": ((6, _tile),),
    "Upsample": ((7, _upsample),),
}
"""For each operator: below which operator set a step applies; the first that applies yields the form of set 7."""
