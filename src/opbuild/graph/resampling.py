"""Tables for resampling: which elements of an axis count for each position of the result, and how much.

Lowering and the host backend resample with the same tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from opbuild.graph.extents import always_equal
from opbuild.graph.number_operations import from_bits
from opbuild.graph.reals import Real, bits_of, real
from opbuild.graph.types import Array, Node
from opbuild.graph.undecided import greater, lesser
from opbuild.platform.records import NamedTuple, dataclass

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}

_COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


@dataclass(frozen=True)
class ResampledAxis:
    """One axis to resample: which, from how many elements to how many, and by what quotient coordinates are mapped.

    A quotient that is open is its bits (``number_operations``), and 0.
    """

    index: int
    extent: int
    wanted: int
    scale: tuple[float, float]


class Way(NamedTuple):
    """The resampling of a node."""

    mode: str
    coordinates: str
    rounding: str
    coefficient: float
    leaves_outside: bool
    antialias: bool


def way_of(node: Node) -> Way:
    """Return the resampling of a Resize or Upsample node."""
    return Way(
        mode_of(node),
        coordinates(node),
        node.text("nearest_mode", "floor" if node.op_type == "Upsample" else "round_prefer_floor"),
        float(node.attrs.get("cubic_coeff_a", -0.75)),
        bool(node.attrs.get("exclude_outside", 0)),
        bool(node.attrs.get("antialias", 0)),
    )


def mode_of(node: Node) -> str:
    """Return the interpolation of a Resize or Upsample node."""
    return node.text("mode", "nearest")


def coordinates(node: Node) -> str:
    """Return the coordinate transformation of a Resize or Upsample node."""
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
) -> list[ResampledAxis]:
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
    if scales is not None:
        quotients: list[tuple[Any, Any]] = list(map(_quotient, scales))
    else:
        quotients = [(size, shape[axis]) for size, axis in zip(sizes or (), chosen, strict=True)]
        policy = node.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            quotients = [_quotient(aspect_ratio(policy, quotients))] * len(quotients)
    pairs = zip(chosen, quotients, strict=True)
    return [
        ResampledAxis(a, shape[a], wanted[a], scale)
        for a, scale in pairs
        if not (always_equal(*scale) and always_equal(shape[a], wanted[a]))
    ]


def aspect_ratio(policy: str, quotients: Sequence[tuple[Any, Any]]) -> Any:
    """Return the one ratio by which all axes are resized: the least or the greatest of theirs."""
    ratios = [real("divide", real("float64", above), real("float64", below)) for above, below in quotients]
    return reduce(lesser if policy == "not_larger" else greater, ratios)


def _quotient(scale: Any) -> tuple[Any, Any]:
    return (bits_of(scale), 0) if isinstance(scale, Real) else float(scale).as_integer_ratio()


def places_of(way: Sequence[Any], extent: int, wanted: int, above: float, below: float) -> Array:
    """Return the neighbours of each position, ``(wanted, taps)`` of int32; see ``neighbours``."""
    return neighbours(Way(*way), ResampledAxis(0, extent, wanted, (above, below)))[0]


def weights_of(way: Sequence[Any], extent: int, wanted: int, above: float, below: float) -> Array:
    """Return the weights of the neighbours of each position, ``(wanted, taps)`` of float32; see ``neighbours``."""
    return neighbours(Way(*way), ResampledAxis(0, extent, wanted, (above, below)))[1].astype(np.float32)


def neighbours(way: Way, axis: ResampledAxis) -> tuple[Array, Array]:
    """Return the neighbours (int32) and weights (float64) of each position, ``(wanted, taps)``.

    The nearest ones are found in float32, as every framework does: which of two it is at a tie is the rounding's.
    """
    above, below = axis.scale
    scale = above / below if below else float(from_bits(int(above)))
    if way.mode == "nearest":
        places = _rounded(_positions(axis, np.float32(scale), way.coordinates), way.rounding)
        return np.clip(places, 0, axis.extent - 1).astype(np.int32)[:, None], np.ones((axis.wanted, 1))
    x = _positions(axis, np.float64(scale), way.coordinates)
    # Antialiasing stretches the filter over all elements that come together in one.
    stretch = max(1.0, 1 / scale) if way.antialias else 1.0
    reach = int(np.ceil(TAPS[way.mode] / 2 * stretch))
    places = (np.ceil(x) - reach)[:, None] + np.arange(2 * reach)
    distance = np.abs(x[:, None] - places) / stretch
    weights = np.maximum(1 - distance, 0) if way.mode == "linear" else cubic(distance, way.coefficient)
    if stretch > 1:
        weights = weights / weights.sum(1, keepdims=True)
    if way.leaves_outside:
        weights = np.where((places < 0) | (places >= axis.extent), 0.0, weights)
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(places, 0, axis.extent - 1).astype(np.int32), weights


def _positions(axis: ResampledAxis, scale: Any, mode: str) -> Array:
    """Return the place of each position of the output among the input's elements, as ONNX defines each mode.

    The length of the result is how many elements it has, also where a scale would make a fraction of one more: so do
    the frameworks that models come from.
    """
    x = np.arange(axis.wanted, dtype=scale.dtype)
    if mode == "align_corners":
        return np.asarray(x * x.dtype.type(axis.extent - 1) / x.dtype.type(max(axis.wanted - 1, 1)))
    if mode == "asymmetric":
        return np.asarray(x / scale)
    half = np.asarray((x + scale.dtype.type(0.5)) / scale - scale.dtype.type(0.5))
    if mode == "half_pixel":
        return half
    if mode == "pytorch_half_pixel":
        return half if axis.wanted > 1 else np.zeros_like(x)
    moved = axis.extent / 2 * (1 - axis.wanted / (float(scale) * axis.extent))
    return np.asarray(half + scale.dtype.type(moved))  # half_pixel_symmetric


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
