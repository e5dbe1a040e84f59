"""Lowering of Resize and Upsample: one axis after the other, by tables made when the network is built.

A table says for each position of the output which neighbours of the input count, and how much. So every way to map
coordinates, and nearest, linear and cubic alike, are the same kernel with other constants; nearest is a gather.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from opbuild.graph.types import Array, Node, TensorType
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.kernel.program import View
from opbuild.lowering.context import Lowering, NotServedError, rule
from opbuild.lowering.loops import vector_width
from opbuild.lowering.operands import Plain
from opbuild.lowering.rules.gather import emit_gather
from opbuild.lowering.seen import dense_as

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}

PARALLEL_ELEMENTS = 1 << 15
"""From here on waking a second thread costs less than it saves."""


@dataclass(frozen=True)
class Axis:
    """One axis to resample: which, from how many elements to how many, and by what factor coordinates are mapped."""

    index: int
    extent: int
    wanted: int
    scale: float


@rule("Resize", "Upsample")
def resize(lowering: Lowering, node: Node) -> None:
    """Lower Resize with scales or sizes known when the network is built."""
    source, output = node.inputs[0], node.outputs[0]
    mode = _text(node, "mode", "nearest")
    if mode not in TAPS:
        raise NotServedError(f"Resize in mode {mode} has no kernel")
    if node.attrs.get("antialias", 0) or _coordinates(node) == "tf_crop_and_resize":
        raise NotServedError("Resize with antialiasing or a region has no kernel")
    if mode != "nearest" and lowering.type(source).dtype != "float32":
        raise NotServedError(f"Resize of {lowering.type(source).dtype} has no kernel")
    axes = _axes(lowering, node)
    if not lowering.type(output).size:
        lowering.new_plain(output)
        return
    if not axes:
        lowering.bind(output, lowering.plain(source))
        return
    # Shrinking comes first, so that the other axes have less to do; then the innermost, whose neighbours are gathered.
    value = lowering.dense(source)
    for number, axis in enumerate(sorted(axes, key=lambda a: (a.scale >= 1, -a.index))):
        value = _resample(lowering, node, value, axis, last=number == len(axes) - 1)


def _resample(lowering: Lowering, node: Node, value: Plain, axis: Axis, last: bool) -> Plain:
    shape = (*value.shape[: axis.index], axis.wanted, *value.shape[axis.index + 1 :])
    places, weights = table(axis, node)
    name = node.outputs[0]
    target = lowering.new_plain(name) if last else lowering.temporary(TensorType(value.storage.dtype, shape))
    outer, inner = prod(shape[: axis.index]), prod(shape[axis.index + 1 :])
    x, out = dense_as(value, (outer, axis.extent, inner)), dense_as(target, (outer, axis.wanted, inner))
    recipe = f"resize {axis} {sorted((key, repr(item)) for key, item in node.attrs.items())}"
    index = lowering.packed((), f"{recipe} places", places.shape, "int32", lambda: places)
    if places.shape[1] == 1:
        emit_gather(lowering, node, (x, dense_as(index, (axis.wanted,)), out), {"kind": "rows"}, "Resize")
        return target
    factors = lowering.packed((), f"{recipe} weights", weights.shape, "float32", lambda: weights)
    if inner == 1:
        x, out = dense_as(value, (outer, axis.extent)), dense_as(target, (outer, axis.wanted))
    taps, parallel = places.shape[1], lowering.options.num_threads > 1 and prod(shape) >= PARALLEL_ELEMENTS

    def make(views: tuple[View, ...]) -> tuple[OpDesc, tuple[View, ...]]:
        return _describe(views, taps, parallel), views

    lowering.emit(make, (x, index, factors, out), node)
    return target


def _describe(views: tuple[View, ...], taps: int, parallel: bool) -> OpDesc:
    out = views[-1]
    width = vector_width(out.dims[0][0], 4)
    inner = len(out.dims) == 3
    rest = (Dim(min=1),) * (len(out.dims) - 1)
    entries = (Dim(extent=taps, stride=1), Dim(stride=taps))
    return OpDesc(
        op_types=("Resize",),
        family="resize",
        attrs={"taps": taps},
        inputs=(
            Operand("x", "float32", (Dim(stride=1, min=width if inner else 1), *rest)),
            Operand("places", "int32", entries),
            Operand("weights", "float32", entries),
        ),
        outputs=(Operand("out", "float32", (Dim(stride=1, min=width), *rest)),),
        variant={"width": width, "parallel": parallel},
    )


# -- what is asked ----------------------------------------------------------------------------------------------------


def _text(node: Node, name: str, default: str) -> str:
    value = node.attrs.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def _coordinates(node: Node) -> str:
    default = "asymmetric" if node.op_type == "Upsample" else "half_pixel"
    return _text(node, "coordinate_transformation_mode", default)


def _known(lowering: Lowering, node: Node, index: int) -> list[float] | None:
    if index >= len(node.inputs) or not node.inputs[index]:
        return None
    value = lowering.constant(node.inputs[index])
    if value is None:
        raise NotServedError(f"{node.op_type} by factors known only at run time has no kernel")
    return [float(item) for item in value.reshape(-1)] or None


def _axes(lowering: Lowering, node: Node) -> list[Axis]:
    shape, wanted = lowering.type(node.inputs[0]).shape, lowering.type(node.outputs[0]).shape
    given = node.attrs.get("axes")
    chosen = [int(axis) % len(shape) for axis in given] if given is not None else list(range(len(shape)))
    scales = _known(lowering, node, 1 if node.op_type == "Upsample" else 2)
    sizes = None if node.op_type == "Upsample" else _known(lowering, node, 3)
    if scales is None:
        if sizes is None:
            raise NotServedError("Resize without scales and sizes")
        scales = [size / shape[axis] for size, axis in zip(sizes, chosen, strict=True)]
        policy = _text(node, "keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = min(scales) if policy == "not_larger" else max(scales)
            scales = [one] * len(scales)
    pairs = zip(chosen, scales, strict=True)
    return [Axis(a, shape[a], wanted[a], scale) for a, scale in pairs if scale != 1.0 or shape[a] != wanted[a]]


# -- tables -----------------------------------------------------------------------------------------------------------


def table(axis: Axis, node: Node) -> tuple[Array, Array]:
    """Return the neighbours (int32) and weights (float32) of each position, ``(wanted, taps)``."""
    x = _positions(axis, _coordinates(node))
    mode = _text(node, "mode", "nearest")
    if mode == "nearest":
        places = _rounded(
            x, _text(node, "nearest_mode", "floor" if node.op_type == "Upsample" else "round_prefer_floor")
        )
        return np.clip(places, 0, axis.extent - 1).astype(np.int32)[:, None], np.ones((axis.wanted, 1), np.float32)
    left = np.ceil(x) - 1 if mode == "linear" else np.ceil(x) - 2
    places = left[:, None] + np.arange(TAPS[mode])
    if mode == "linear":
        ratio = x - left
        weights = np.stack([1 - ratio, ratio], 1)
    else:
        weights = _cubic(np.abs(x[:, None] - places), float(node.attrs.get("cubic_coeff_a", -0.75)))
    if node.attrs.get("exclude_outside", 0):
        weights = np.where((places < 0) | (places >= axis.extent), 0.0, weights)
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(places, 0, axis.extent - 1).astype(np.int32), weights.astype(np.float32)


def _positions(axis: Axis, mode: str) -> Array:
    """Return where each position of the output lies among the input's elements, as ONNX defines each mode."""
    x = np.arange(axis.wanted, dtype=np.float64)
    length = axis.scale * axis.extent
    if mode == "align_corners":
        return x * (axis.extent - 1) / (length - 1) if length != 1 else np.zeros_like(x)
    if mode == "asymmetric":
        return x / axis.scale
    half = (x + 0.5) / axis.scale - 0.5
    if mode == "half_pixel":
        return half
    if mode == "pytorch_half_pixel":
        return half if length != 1 else np.full_like(x, -0.5)
    if mode == "half_pixel_symmetric":
        return half + axis.extent / 2 * (1 - axis.wanted / length)
    raise NotServedError(f"Resize with coordinates {mode} has no kernel")


def _rounded(x: Array, mode: str) -> Array:
    if mode == "floor":
        return np.floor(x)
    if mode == "ceil":
        return np.ceil(x)
    return np.ceil(x - 0.5) if mode == "round_prefer_floor" else np.floor(x + 0.5)


def _cubic(distance: Array, a: float) -> Array:
    """Return the weight of a neighbour at a distance: Keys' cubic convolution."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
