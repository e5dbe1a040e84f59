"""Operators of older operator sets, rewritten to their newest form, one node at a time.

onnx's own version converter copies the whole model, weights included, and lacks adapters for several operators; only
the operators below changed in more than the element types they accept.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from opbuild.errors import UnsupportedOperatorError
from opbuild.frontend.onnx_upgrade_old import to_set_7
from opbuild.frontend.upgrade_steps import Upgrade, changed, ints_to_inputs, moved, replaced
from opbuild.graph.graph_builder import Scope
from opbuild.graph.types import Node


def upgrade(node: Node, opset: int, scope: Scope) -> Sequence[Node]:
    """Return nodes of the newest operator set that compute what ``node`` computes in operator set ``opset``.

    Raises:
        UnsupportedOperatorError: If the newest operator set can not express it.
    """
    if node.domain:
        return (node,)
    if opset < 7:
        return [new for each in to_set_7(node, opset, scope) for new in _from_set_7(each, 7, scope)]
    return _from_set_7(node, opset, scope)


def _from_set_7(node: Node, opset: int, scope: Scope) -> Sequence[Node]:
    for before, step in _STEPS.get(node.op_type, ()):
        if opset < before:
            return step(node, scope)
    return (node,)


def _batch_normalization(node: Node, scope: Scope) -> Sequence[Node]:
    """Before opset 14 a node with more outputs than one was in training, where it normalises by the batch itself."""
    if any(node.outputs[3:]):
        raise UnsupportedOperatorError(
            f"BatchNormalization node {node.name!r} gives what training saves for gradients", "export it for inference"
        )
    training = int(any(node.outputs[1:]))
    if node.attrs.get("spatial", 1):
        return (replaced(node, ("spatial",), training_mode=training).with_(outputs=node.outputs[:3]),)
    if training:
        raise UnsupportedOperatorError(
            f"BatchNormalization node {node.name!r} is in training mode with spatial=0",
            "normalise each channel (spatial=1) and export again",
        )
    return _by_position(node, scope)


def _by_position(node: Node, scope: Scope) -> Sequence[Node]:
    """Normalise each position by statistics of its own, which no newer operator does."""
    x, scale, bias, mean, variance = node.inputs
    dtype = scope.type_of(x).dtype
    epsilon = scope.constant(np.asarray(node.attrs.get("epsilon", 1e-5), dtype))
    parts = ("centred", "wide", "deviation", "unit", "scaled")
    centred, wide, deviation, unit, scaled = (scope.fresh(f"{node.name}/{part}") for part in parts)
    steps = (
        ("Sub", (x, mean), centred),
        ("Add", (variance, epsilon), wide),
        ("Sqrt", (wide,), deviation),
        ("Div", (centred, deviation), unit),
        ("Mul", (unit, scale), scaled),
        ("Add", (scaled, bias), node.outputs[0]),
    )
    return [Node(op_type, inputs, (output,), {}, f"{node.name}/{output}") for op_type, inputs, output in steps]


def _softmax(node: Node, scope: Scope) -> Sequence[Node]:
    """Before opset 13 it normalised over all dimensions from ``axis`` on, as one."""
    shape = scope.type_of(node.inputs[0]).shape
    axis = int(node.attrs.get("axis", 1))
    axis = axis + len(shape) if axis < 0 else axis
    if axis == len(shape) - 1 or (axis < len(shape) and prod(shape[axis + 1 :]) == 1):
        return (replaced(node, axis=axis),)
    flat, result = scope.fresh(f"{node.name}/flat"), scope.fresh(f"{node.name}/result")
    return (
        Node("Flatten", node.inputs, (flat,), {"axis": axis}, f"{node.name}/flatten"),
        replaced(node, inputs=(flat,), axis=-1).with_(outputs=(result,)),
        Node("Reshape", (result, scope.constant(np.array(shape, np.int64))), node.outputs, {}, f"{node.name}/reshape"),
    )


def _clip(node: Node, scope: Scope) -> Sequence[Node]:
    return moved(node, scope, ("min", "max"), scope.type_of(node.inputs[0]).dtype, ())


def _pad(node: Node, scope: Scope) -> Sequence[Node]:
    dtype = scope.type_of(node.inputs[0]).dtype
    pads = scope.constant(np.asarray(node.attrs.get("pads", ()), np.int64))
    value = scope.constant(np.asarray(node.attrs.get("value", 0.0), dtype))
    return (replaced(node, ("pads", "value"), (node.inputs[0], pads, value)),)


def _split(node: Node, scope: Scope) -> Sequence[Node]:
    """Sizes were an attribute before opset 13, and then an input; without them all outputs are alike."""
    if "split" in node.attrs:
        return moved(node, scope, ("split",))
    return (node if any(node.inputs[1:]) else replaced(node, num_outputs=len(node.outputs)),)


def _upsample_7(node: Node, scope: Scope) -> Sequence[Node]:
    scales = scope.constant(np.asarray(node.attrs.get("scales", ()), np.float32))
    return _resize_10(replaced(node, ("scales",), (node.inputs[0], scales)), scope)


def _resize_10(node: Node, scope: Scope) -> Sequence[Node]:
    """Before opset 11 coordinates were asymmetric and nearest rounded down."""
    old = node.attrs.get("mode", "nearest")
    mode = {"bilinear": "linear", "trilinear": "linear"}.get(str(old), old)
    changed = replaced(
        node,
        (),
        (node.inputs[0], "", node.inputs[1]),
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return (changed.with_(op_type="Resize"),)


def _resize_11(node: Node, scope: Scope) -> Sequence[Node]:
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


def _group_normalization(node: Node, scope: Scope) -> Sequence[Node]:
    """Opset 18 had one scale and bias a group; now each channel has its own."""
    channels, groups = scope.type_of(node.inputs[0]).shape[1], int(node.attrs["num_groups"])
    column, wide, flat = (
        scope.constant(np.array(shape, np.int64)) for shape in ((groups, 1), (groups, channels // groups), (channels,))
    )
    nodes: list[Node] = []
    inputs = [node.inputs[0]]
    for source, part in zip(node.inputs[1:3], ("scale", "bias"), strict=True):
        for op_type, shape in (("Reshape", column), ("Expand", wide), ("Reshape", flat)):
            result = scope.fresh(f"{node.name}/{part}")
            nodes.append(Node(op_type, (source, shape), (result,), {}, f"{node.name}/{part}"))
            source = result  # noqa: PLW2901 - each step reads the one before
        inputs.append(source)
    return (*nodes, replaced(node, (), tuple(inputs)))


def _dft(node: Node, scope: Scope) -> Sequence[Node]:
    length = node.inputs[1] if len(node.inputs) > 1 else ""
    axis = scope.constant(np.asarray(node.attrs.get("axis", 1), np.int64))
    return (replaced(node, ("axis",), (node.inputs[0], length, axis)),)


def _grid_sample(node: Node, scope: Scope) -> Sequence[Node]:
    old = str(node.attrs.get("mode", "bilinear"))
    return (replaced(node, mode={"bilinear": "linear", "bicubic": "cubic"}.get(old, old)),)


_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSumSquare",
)  # fmt: skip

_STEPS: dict[str, tuple[tuple[int, Upgrade], ...]] = {
    "BatchNormalization": ((14, _batch_normalization),),
    "Dropout": (
        (10, changed("ratio", outputs=1)),  # the mask had the data's type; nobody reads it in inference
        (12, changed("ratio")),
    ),
    "Softmax": ((13, _softmax),),
    "LogSoftmax": ((13, _softmax),),
    "Hardmax": ((13, _softmax),),
    "Clip": ((11, _clip),),
    "Pad": ((11, _pad),),
    "Slice": ((10, ints_to_inputs("starts", "ends", "axes")),),
    "Squeeze": ((13, ints_to_inputs("axes")),),
    "Unsqueeze": ((13, ints_to_inputs("axes")),),
    "ReduceSum": ((13, ints_to_inputs("axes")),),
    **{name: ((18, ints_to_inputs("axes")),) for name in _REDUCTIONS},
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
"""For each operator: below which operator set a step applies; the first that applies yields the newest form."""


def upgrades(node: Node) -> bool:
    """Return whether a step may rewrite a node, perhaps to another operator."""
    return not node.domain and node.op_type in _STEPS
