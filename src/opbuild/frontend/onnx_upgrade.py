"""Operators of older operator sets, rewritten to their newest form, one node at a time.

onnx's own version converter copies the whole model, weights included, and lacks adapters for several operators; only
the operators below changed in more than the element types they accept.

The operator sets 1 to 6 had attributes that said which inputs could be overwritten (``consumed_inputs``), whether a
network was trained or run (``is_test``), and how an elementwise operator's second operand was aligned (``broadcast``,
``axis``). Operators of those are rewritten to the form that they have in operator set 7 first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.errors import InvalidModelError, ShapeError, UnsupportedOperatorError
from opbuild.frontend.rewriting import RewriteScope, Rewriting
from opbuild.graph.shape_rules import ONNX_NUMBERS
from opbuild.graph.types import Node

Upgrade = Callable[[Node, RewriteScope], Sequence[Node]]
Steps = tuple[tuple[int, Upgrade], ...]
"""Below which operator set a step applies; the first that applies is taken."""


def replaced(node: Node, drop: tuple[str, ...] = (), inputs: tuple[str, ...] | None = None, **attrs: Any) -> Node:
    """Return a node without some attributes, with others set and perhaps with other inputs."""
    kept = {name: value for name, value in node.attrs.items() if name not in drop}
    return node.with_(attrs={**kept, **attrs}, inputs=node.inputs if inputs is None else inputs, proto=None)


def changed(*drop: str, op_type: str = "", outputs: int | None = None, **attrs: Any) -> Upgrade:
    """Leave attributes out and set others, perhaps of another operator or with the first outputs only."""

    def step(node: Node, scope: RewriteScope) -> Sequence[Node]:
        return (replaced(node, drop, **attrs).with_(op_type=op_type or node.op_type, outputs=node.outputs[:outputs]),)

    return step


def moved(
    node: Node, scope: RewriteScope, names: Sequence[str], dtype: str = "int64", shape: tuple[int, ...] = (-1,)
) -> Sequence[Node]:
    """Move attributes to further inputs; an absent one becomes an absent input."""
    attrs = node.attrs
    added = [scope.constant(np.asarray(attrs[name], dtype).reshape(shape)) if name in attrs else "" for name in names]
    while added and not added[-1]:
        added.pop()
    return (replaced(node, tuple(names), (*node.inputs, *added)),)


def ints_to_inputs(*names: str) -> Upgrade:
    """Move integer list attributes to int64 inputs."""
    return lambda node, scope: moved(node, scope, names)


def to_set_7(node: Node, opset: int, scope: RewriteScope) -> Sequence[Node]:
    """Return nodes of operator set 7 that compute a node of an older one.

    Raises:
        UnsupportedOperatorError: If no newer operator set can express it.
        ModelError: If its operands do not fit as the older operator set demands.
    """
    node = replaced(node, ("consumed_inputs",)) if "consumed_inputs" in node.attrs else node
    return _stepped(_OLD_STEPS, node, opset, scope)


def _stepped(steps: Mapping[str, Steps], node: Node, opset: int, scope: RewriteScope) -> Sequence[Node]:
    """Return a node after the first step that applies to its operator set."""
    for before, step in steps.get(node.op_type, ()):
        if opset < before:
            return step(node, scope)
    return (node,)


def _reshaped(node: Node, index: int, shape: Sequence[int], scope: RewriteScope) -> Sequence[Node]:
    """Return a node that reads an input in another shape, after the node that reshapes it."""
    of = Rewriting(node, scope)
    inputs = (*node.inputs[:index], of.reshape(of.input(index), shape), *node.inputs[index + 1 :])
    return (*of.nodes, replaced(node, inputs=inputs))


def _elementwise(node: Node, scope: RewriteScope) -> Sequence[Node]:
    """The second operand was aligned at ``axis``, at the end without one, and only if ``broadcast`` was set."""
    left, right = (scope.type_of(name).shape for name in node.inputs[:2])
    plain = replaced(node, ("axis", "broadcast"))
    if left == right:
        return (plain,)
    where = f"{node.op_type} node {node.name!r}: its second operand {list(right)}"
    if not node.attrs.get("broadcast", 0):
        problem = f"{where} has not the shape {list(left)} of the first, and it does not broadcast"
        raise ShapeError(problem, "set the attribute broadcast=1, or export the model with operator set 7 or newer")
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


def _prelu(node: Node, scope: RewriteScope) -> Sequence[Node]:
    """A slope for each channel was a vector; now it broadcasts as numpy's arrays do."""
    rank, slope = len(scope.type_of(node.inputs[0]).shape), scope.type_of(node.inputs[1]).shape
    if len(slope) != 1 or slope == (1,) or rank <= 2:
        return (node,)
    return _reshaped(node, 1, (slope[0], *(1 for _ in range(rank - 2))), scope)


def _old_batch_normalization(node: Node, scope: RewriteScope) -> Sequence[Node]:
    """Rewrite a BatchNormalization of before operator set 7, whose outputs alone say that it is run in training."""
    tested = bool(node.attrs.get("is_test", 0))
    if not tested and len(node.outputs) < 2:
        node = node.with_(outputs=(*node.outputs, scope.fresh(f"{node.name}/mean"), scope.fresh(f"{node.name}/var")))
    outputs = node.outputs[:1] if tested else node.outputs
    return (replaced(node, ("is_test",)).with_(outputs=outputs),)


def _dropout(node: Node, scope: RewriteScope) -> Sequence[Node]:
    if not node.attrs.get("is_test", 0):
        raise UnsupportedOperatorError(
            f"Dropout node {node.name!r} is in training mode (is_test=0)", "export the model for inference (is_test=1)"
        )
    return (replaced(node, ("is_test",)),)


def _cast(node: Node, scope: RewriteScope) -> Sequence[Node]:
    """The type was named."""
    name = node.text("to", "").lower()
    dtype = {"float": "float32", "double": "float64"}.get(name, name)
    number = ONNX_NUMBERS.get(dtype)
    if number is None:
        raise InvalidModelError(f"Cast node {node.name!r}: {name!r} is no element type", "export the model again")
    return (replaced(node, to=number),)


def _old_split(node: Node, scope: RewriteScope) -> Sequence[Node]:
    """Sizes could be an input, of the type of the data that is split."""
    if len(node.inputs) < 2 or not node.inputs[1]:
        return (node,)
    raise UnsupportedOperatorError(
        f"Split node {node.name!r} has its sizes as an input, in operator set 1", "give them as the attribute split"
    )


def _tile(node: Node, scope: RewriteScope) -> Sequence[Node]:
    """One axis was repeated: both it and the number of copies are inputs."""
    rank = len(scope.type_of(node.inputs[0]).shape)
    of = Rewriting(node, scope)
    is_here = of("Cast", of("Equal", of.constant(np.arange(rank)), of.input(2)), to=ONNX_NUMBERS["int64"])
    one = of.constant(np.ones((), np.int64))
    repeats = of("Add", of("Mul", is_here, of("Sub", of.input(1), one)), one)
    return (*of.nodes, replaced(node, inputs=(node.inputs[0], repeats)))


def _old_upsample(node: Node, scope: RewriteScope) -> Sequence[Node]:
    scales = (1.0, 1.0, float(node.attrs["height_scale"]), float(node.attrs["width_scale"]))
    return (replaced(node, ("height_scale", "width_scale"), scales=scales),)


def _norm(node: Node, scope: RewriteScope) -> Sequence[Node]:
    """The power of a norm was a float."""
    power = float(node.attrs.get("p", 2.0))
    if not power.is_integer():
        raise UnsupportedOperatorError(
            f"{node.op_type} node {node.name!r} has the power {power}", "only whole powers are supported"
        )
    return (replaced(node, p=int(power)),)


def _defaults(**attrs: float) -> Upgrade:
    """Write out the former defaults."""
    return lambda node, scope: (replaced(node, **{**attrs, **node.attrs}),)


_BINARY = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")

_OLD_STEPS: dict[str, Steps] = {
    **dict.fromkeys(_BINARY, ((7, _elementwise),)),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), ((7, changed("output_sequence")),)),
    **dict.fromkeys(("GlobalLpPool", "LpPool"), ((2, _norm),)),
    "BatchNormalization": ((7, _old_batch_normalization),),
    "Cast": ((6, _cast),),
    "Concat": ((4, _defaults(axis=1)),),
    "Dropout": ((7, _dropout),),
    "Gemm": ((7, changed("broadcast")),),
    "PRelu": ((7, _prelu),),
    "Pad": ((2, lambda node, scope: (replaced(node, ("paddings",), pads=node.attrs["paddings"]),)),),
    "Reshape": (
        (5, lambda node, scope: moved(node if "shape" in node.attrs else replaced(node, shape=()), scope, ("shape",))),
    ),
    "Selu": ((6, _defaults(alpha=1.6732, gamma=1.0507)),),
    "Split": ((2, _old_split),),
    "Tile": ((6, _tile),),
    "Upsample": ((7, _old_upsample),),
}
"""What yields the form of operator set 7."""


def upgrade(node: Node, opset: int, scope: RewriteScope) -> Sequence[Node]:
    """Return nodes of the newest operator set that compute ``node`` of operator set ``opset``.

    Raises:
        UnsupportedOperatorError: If the newest operator set cannot express it.
    """
    if node.domain:
        return (node,)
    if opset < 7:
        return [new for each in to_set_7(node, opset, scope) for new in _stepped(_STEPS, each, 7, scope)]
    return _stepped(_STEPS, node, opset, scope)


def _batch_normalization(node: Node, scope: RewriteScope) -> Sequence[Node]:
    """Before opset 14 a node with more outputs than one was in training, where it normalises by the batch itself."""
    if any(node.outputs[3:]):
        raise UnsupportedOperatorError(
            f"BatchNormalization node {node.name!r} gives what training saves for gradients", "export it for inference"
        )
    training = int(any(node.outputs[1:]))
    if node.attrs.get("spatial", 1):
        return (replaced(node, ("spatial",), training_mode=training).with_(outputs=node.outputs[:3]),)
    if training:
        problem = f"BatchNormalization node {node.name!r} is in training mode with spatial=0"
        raise UnsupportedOperatorError(problem, "normalise each channel (spatial=1) and export again")
    return _by_position(node, scope)


def _by_position(node: Node, scope: RewriteScope) -> Sequence[Node]:
    """Normalise each position by statistics of its own, which no newer operator does."""
    of = Rewriting(node, scope)
    x, scale, bias, mean, variance = map(of.input, range(5))
    deviation = of("Sqrt", of("Add", variance, of.constant(node.attrs.get("epsilon", 1e-5), x.dtype)))
    return of.finish(of("Add", of("Mul", of("Div", of("Sub", x, mean), deviation), scale), bias))


def _softmax(node: Node, scope: RewriteScope) -> Sequence[Node]:
    """Before opset 13 it normalised over all dimensions from ``axis`` on, as one."""
    shape = scope.type_of(node.inputs[0]).shape
    axis = int(node.attrs.get("axis", 1))
    axis = axis + len(shape) if axis < 0 else axis
    if axis == len(shape) - 1 or (axis < len(shape) and prod(shape[axis + 1 :]) == 1):
        return (replaced(node, axis=axis),)
    of = Rewriting(node, scope)
    flat = of("Flatten", of.input(0), axis=axis)
    normalized = of(node.op_type, flat, **{**node.attrs, "axis": -1})
    return of.finish(of.reshape(normalized, shape))


def _pad(node: Node, scope: RewriteScope) -> Sequence[Node]:
    dtype = scope.type_of(node.inputs[0]).dtype
    pads = scope.constant(np.asarray(node.attrs.get("pads", ()), np.int64))
    value = scope.constant(np.asarray(node.attrs.get("value", 0.0), dtype))
    return (replaced(node, ("pads", "value"), (node.inputs[0], pads, value)),)


def _split(node: Node, scope: RewriteScope) -> Sequence[Node]:
    """Sizes were an attribute before opset 13, and then an input; without them all outputs are alike."""
    if "split" in node.attrs:
        return moved(node, scope, ("split",))
    return (node if any(node.inputs[1:]) else replaced(node, num_outputs=len(node.outputs)),)


def _upsample_7(node: Node, scope: RewriteScope) -> Sequence[Node]:
    scales = scope.constant(np.asarray(node.attrs.get("scales", ()), np.float32))
    return _resize_10(replaced(node, ("scales",), (node.inputs[0], scales)), scope)


def _resize_10(node: Node, scope: RewriteScope) -> Sequence[Node]:
    """Before opset 11 coordinates were asymmetric and nearest rounded down."""
    old = node.attrs.get("mode", "nearest")
    mode = {"bilinear": "linear", "trilinear": "linear"}.get(str(old), old)
    attrs = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return (replaced(node, (), (node.inputs[0], "", node.inputs[1]), **attrs).with_(op_type="Resize"),)


def _resize_11(node: Node, scope: RewriteScope) -> Sequence[Node]:
    """Opset 11 had one mode more, and empty tensors where later sets leave an input out."""
    if node.attrs.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        if node.attrs.get("mode", "nearest") != "nearest":
            raise UnsupportedOperatorError(
                f"Resize node {node.name!r} uses tf_half_pixel_for_nn outside mode nearest", "export it with half_pixel"
            )
        node = replaced(node, coordinate_transformation_mode="half_pixel", nearest_mode="floor")
    if len(node.inputs) > 3 and node.inputs[3]:
        return (replaced(node, (), (node.inputs[0], node.inputs[1], "", node.inputs[3])),)
    return (node,)


def _group_normalization(node: Node, scope: RewriteScope) -> Sequence[Node]:
    """Opset 18 had one scale and bias a group; now each channel has its own."""
    channels, groups = scope.type_of(node.inputs[0]).shape[1], int(node.attrs["num_groups"])
    of = Rewriting(node, scope)
    wide = of.ints(groups, channels // groups)
    spread = [of.reshape(of("Expand", of.reshape(of.input(index), (groups, 1)), wide), (channels,)) for index in (1, 2)]
    return (*of.nodes, replaced(node, inputs=(node.inputs[0], *spread)))


def _dft(node: Node, scope: RewriteScope) -> Sequence[Node]:
    axis = scope.constant(np.asarray(node.attrs.get("axis", 1), np.int64))
    return (replaced(node, ("axis",), (*(*node.inputs, "")[:2], axis)),)


def _grid_sample(node: Node, scope: RewriteScope) -> Sequence[Node]:
    old = str(node.attrs.get("mode", "bilinear"))
    return (replaced(node, mode={"bilinear": "linear", "bicubic": "cubic"}.get(old, old)),)


_REDUCTIONS = tuple(
    f"Reduce{name}" for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
)

_STEPS: dict[str, Steps] = {
    "BatchNormalization": ((14, _batch_normalization),),
    "Dropout": (
        (10, changed("ratio", outputs=1)),  # the mask had the data's type; nobody reads it in inference
        (12, changed("ratio")),
    ),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), ((13, _softmax),)),
    "Clip": ((11, lambda node, scope: moved(node, scope, ("min", "max"), scope.type_of(node.inputs[0]).dtype, ())),),
    "Pad": ((11, _pad),),
    "Slice": ((10, ints_to_inputs("starts", "ends", "axes")),),
    **dict.fromkeys(("ReduceSum", "Squeeze", "Unsqueeze"), ((13, ints_to_inputs("axes")),)),
    **dict.fromkeys(_REDUCTIONS, ((18, ints_to_inputs("axes")),)),
    "Split": ((18, _split),),
    "TopK": ((10, ints_to_inputs("k")),),
    "Upsample": ((9, _upsample_7), (10, _resize_10)),
    "Resize": ((11, _resize_10), (13, _resize_11)),
    "GroupNormalization": ((21, _group_normalization),),
    "DFT": ((20, _dft),),
    "GridSample": ((20, _grid_sample),),
    "RoiAlign": ((16, changed(coordinate_transformation_mode="output_half_pixel")),),
    "Scatter": ((11, changed(op_type="ScatterElements")),),
}
"""What yields the newest form."""


def upgrades(node: Node) -> bool:
    """Return whether a step may rewrite a node, perhaps to another operator."""
    return not node.domain and node.op_type in _STEPS
