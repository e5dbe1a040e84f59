"""Tables for resampling: which elements of an axis count for each position of the result, and how much.

Lowering and the host backend resample with the same tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opbuild.graph.extents import at_hand
from opbuild.graph.types import Array, Node

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}

LONG = 1024
"""Elements, at least, of an axis of which another one is the beginning."""

_COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


@dataclass(frozen=True)
class Axis:
    """One axis to resample: which, from how many elements to how many, and by what factor coordinates are mapped."""

    index: int
    extent: int
    wanted: int
    scale: float


def mode_of(node: Node) -> str:
    """Return how a Resize or Upsample node interpolates."""
    return node.text("mode", "nearest")


def coordinates(node: Node) -> str:
    """Return how a Resize or Upsample node maps coordinates."""
    default = "asymmetric" if node.op_type == "Upsample" else "half_pixel"
    return node.text("coordinate_transformation_mode", default)


def is_plain(node: Node) -> bool:
    """Return whether tables resample as the node says: axis by axis, without regions."""
    return mode_of(node) in TAPS and coordinates(node) in _COORDINATES


def axes_of(
    node: Node,
    shape: Sequence[int],
    wanted: Sequence[int],
    scales: Sequence[float] | None,
    sizes: Sequence[float] | None,
) -> list[Axis]:
    """Return the axes that a Resize or Upsample node changes.

    Args:
        node: The node.
        shape: The input's shape.
        wanted: The output's shape.
        scales: The factors that it gives, or None.
        sizes: The extents that it gives instead.
    """
    given = node.attrs.get("axes")
    chosen = [int(axis) % len(shape) for axis in given] if given is not None else list(range(len(shape)))
    if scales is None:
        scales = [size / shape[axis] for size, axis in zip(sizes or (), chosen, strict=True)]
        policy = node.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = min(scales) if policy == "not_larger" else max(scales)
            scales = [one] * len(scales)
    pairs = zip(chosen, scales, strict=True)
    return [Axis(a, shape[a], wanted[a], scale) for a, scale in pairs if scale != 1.0 or shape[a] != wanted[a]]


def table(axis: Axis, node: Node) -> tuple[Array, Array]:
    """Return the neighbours (int32) and weights (float32) of each position, ``(wanted, taps)``."""
    axis = Axis(axis.index, int(axis.extent), int(axis.wanted), axis.scale)
    x = _positions(axis, coordinates(node))
    mode = mode_of(node)
    if mode == "nearest":
        places = _rounded(x, node.text("nearest_mode", "floor" if node.op_type == "Upsample" else "round_prefer_floor"))
        return np.clip(places, 0, axis.extent - 1).astype(np.int32)[:, None], np.ones((axis.wanted, 1), np.float32)
    # Antialiasing stretches the filter over all elements that come together in one.
    stretch = max(1.0, 1 / axis.scale) if node.attrs.get("antialias", 0) else 1.0
    reach = int(np.ceil(TAPS[mode] / 2 * stretch))
    places = (np.ceil(x) - reach)[:, None] + np.arange(2 * reach)
    distance = np.abs(x[:, None] - places) / stretch
    if mode == "linear":
        weights = np.maximum(1 - distance, 0)
    else:
        weights = cubic(distance, float(node.attrs.get("cubic_coeff_a", -0.75)))
    if stretch > 1:
        weights = weights / weights.sum(1, keepdims=True)
    if node.attrs.get("exclude_outside", 0):
        weights = np.where((places < 0) | (places >= axis.extent), 0.0, weights)
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(places, 0, axis.extent - 1).astype(np.int32), weights.astype(np.float32)


def endless(axis: Axis, node: Node) -> Axis | None:
    """Return a longer axis the beginning of whose table is an open axis' table, at any size; None if there is none.

    That is so for neighbours that are repeated a whole number of times.
    """
    factor = int(axis.scale)
    if mode_of(node) != "nearest" or factor != axis.scale or coordinates(node) == "align_corners":
        return None
    count = max(LONG, 4 * at_hand(axis.extent))
    longer = Axis(axis.index, count, count * factor, axis.scale)
    places, _ = table(longer, node)
    fits = axis.wanted == axis.extent * factor and axis.extent <= count
    return longer if fits and (places[:, 0] <= np.arange(count * factor) // factor).all() else None


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
        return half if axis.wanted > 1 else np.zeros_like(x)
    return half + axis.extent / 2 * (1 - axis.wanted / length)  # half_pixel_symmetric


def _rounded(x: Array, mode: str) -> Array:
    if mode == "floor":
        return np.floor(x)
    if mode == "ceil":
        return np.ceil(x)
    return np.ceil(x - 0.5) if mode == "round_prefer_floor" else np.floor(x + 0.5)


def cubic(distance: Array, a: float) -> Array:
    """Return the weight of a neighbour at a distance: Keys' cubic convolution."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
