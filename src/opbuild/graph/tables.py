"""Tables that are constants of one size: worked out for each, from numbers that may be open extents.

A kernel that looks something up (which neighbours a position has, how many elements a window averages) reads a table.
Where its extents are open, a program holds the table's name and arguments, and each size has its own. So have numbers
that follow from extents and are data of an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from opbuild.errors import InvalidModelError
from opbuild.graph.extents import SymbolicExtent, always_equal, example_value
from opbuild.graph.polynomials import from_bits
from opbuild.graph.symbolic_numbers import Real, bits_of, greater, lesser, real
from opbuild.graph.types import Array, Node
from opbuild.platform.records import NamedTuple, dataclass
from opbuild.text.plural import counted

SPATIAL = 3
"""Spatial dimensions that kernels of plain values have; those that a node lacks have one position and one tap."""


class PooledAxis(NamedTuple):
    """One spatial dimension of a pool.

    Attributes:
        size: Positions of the input.
        out: Outputs.
        taps: Taps.
        stride: Positions from one output to the next.
        dilation: Positions from one tap to the next.
        before: Padding before the first position.
        after: Padding behind the last one, as the node says.
    """

    size: int
    out: int
    taps: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def span(self) -> int:
        """Positions from the first tap of the first output to the last tap of the last output."""
        return (self.out - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    @property
    def reach(self) -> int:
        """Positions from the first tap of the first output to the last one that is read or there."""
        return max(self.span, self.before + self.size)

    def counts(self, padded: bool) -> Array:
        """Return the number of taps of each output that lie in the input, or in its padding."""
        start = np.arange(self.out)[:, None] * self.stride + np.arange(self.taps) * self.dilation - self.before
        low, high = (-self.before, self.size + self.after) if padded else (0, self.size)
        return np.asarray(((start >= low) & (start < high)).sum(1))


def window_counts(axes: Sequence[Sequence[Any]], padded: bool, dtype: str) -> Array:
    """Return the number of elements that each output of three dimensions is the average of, 1 where there are none."""
    depth, height, width = (PooledAxis(*axis).counts(padded) for axis in axes)
    return np.asarray(np.maximum(depth[:, None, None] * height[:, None] * width, 1), dtype)


def window_places(axes: Sequence[Sequence[Any]], columns_first: bool) -> Array:
    """Return the place in its plane of each position that is read, -1 in the padding; int64."""
    known = [PooledAxis(*axis) for axis in axes]
    size = tuple(axis.size for axis in known)
    own = np.arange(prod(size)).reshape(size, order="F" if columns_first else "C")
    whole = np.full(tuple(axis.reach for axis in known), -1, np.int64)
    whole[tuple(slice(axis.before, axis.before + axis.size) for axis in known)] = own
    return whole


TAPS = {"nearest": 1, "linear": 2, "cubic": 4}

_COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


@dataclass(frozen=True)
class ResampledAxis:
    """One axis to resample: which, from how many elements to how many, and the quotient of coordinates.

    A quotient that is open is its bits (``polynomials.to_bits``), and 0.
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
    rounding = node.text("nearest_mode", "floor" if node.op_type == "Upsample" else "round_prefer_floor")
    leaves_outside, antialias = (bool(node.attrs.get(name, 0)) for name in ("exclude_outside", "antialias"))
    coefficient = float(node.attrs.get("cubic_coeff_a", -0.75))
    return Way(mode_of(node), coordinates(node), rounding, coefficient, leaves_outside, antialias)


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
    """Return the axes that a Resize or Upsample node changes from a shape to the wanted one.

    It gives factors (``scales``), or extents instead.
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


def resized(way: Sequence[Any], extent: int, wanted: int, above: float, below: float) -> tuple[Array, Array]:
    """Return the neighbours of each position, and their weights; see ``neighbours``."""
    return neighbours(Way(*way), ResampledAxis(0, extent, wanted, (above, below)))


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


LEAST_TABLE, LONGEST_TABLE = 4096, 2**18
"""Elements, at least and at most, of the table of consecutive numbers of which a Range of open bounds is a part."""


def table_slice(bounds: Sequence[Any], dtype: str) -> Array | None:
    """Return a table of consecutive numbers of which a Range is a Slice by the same numbers; None if it is of none."""
    start, limit, delta = bounds
    if not np.issubdtype(np.dtype(dtype), np.integer) or isinstance(delta, SymbolicExtent) or delta <= 0 or start < 0:
        return None
    count = max(LEAST_TABLE, 1 << (4 * example_value(limit)).bit_length())
    fits = count <= min(LONGEST_TABLE, int(np.iinfo(dtype).max)) and limit <= count
    return np.arange(count, dtype=dtype) if fits else None


def numbers(values: Sequence[int], dtype: str) -> Array:
    """Return some numbers; floating-point ones are given by their bits."""
    if dtype.startswith("float"):
        return np.array([from_bits(each) for each in values], dtype)
    return np.array(values, dtype)


def evenly(start: int, step: int, count: int, dtype: str) -> Array:
    """Return so many numbers from a first one on, each a step behind the one before it."""
    first, by = numbers((start, step), dtype)
    found: Array = (first + np.arange(count, dtype=dtype) * by).astype(dtype)
    return found


TABLES: dict[str, Callable[..., Array]] = {
    "diagonal": np.eye,
    "evenly": evenly,
    "numbers": numbers,
    "resize places": lambda *axis: resized(*axis)[0],
    "resize weights": lambda *axis: resized(*axis)[1].astype(np.float32),
    "window counts": window_counts,
    "window places": window_places,
    "window starts": lambda planes, plane: np.arange(planes) * plane,
}
"""What makes each table, by name."""


def numbers_of(value: Array, dtype: str) -> tuple[Any, ...]:
    """Return the elements of a value that follows from open extents as an argument of the table of them."""
    elements = value.reshape(-1).tolist()
    return tuple(map(bits_of, elements)) if np.issubdtype(np.dtype(dtype), np.floating) else tuple(elements)


class Table(NamedTuple):
    """A table that is to be made.

    Attributes:
        name: Its name in ``TABLES``.
        arguments: What it is made of: numbers, text, open extents, and tuples of such.
    """

    name: str
    arguments: tuple[Any, ...]

    def example_value(self) -> Array:
        """Return it for the size at hand."""
        return TABLES[self.name](*map(_example, self.arguments))

    @property
    def is_open(self) -> bool:
        """Whether it is another one in other sizes."""
        return _is_open(self.arguments)


def _is_open(values: Sequence[Any]) -> bool:
    return any(_is_open(each) if isinstance(each, tuple) else isinstance(each, SymbolicExtent) for each in values)


def _example(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_example, value))
    return example_value(value) if isinstance(value, SymbolicExtent) else value


MAPPED = "mapped_type"
"""The attribute of a node that reads a map of the network's: the element type of the map's values."""

_KINDS = {"strings": "object", "int64s": "int64", "floats": "float32"}
_DEFAULTS: dict[str, tuple[str, Any]] = {
    "object": ("default_string", "_Unused"), "int64": ("default_int64", -1), "float32": ("default_float", -0.0)
}  # fmt: skip
"""By the type of the values, the attribute that has what stands for those without a key, and what it is by default."""


def label_table(node: Node, dtype: str) -> tuple[Array, Array]:
    """Return the keys, and a table: the value for those without a key, then the value of each key.

    The node is a LabelEncoder of any operator set; its input's element type is ``object`` for text.

    Raises:
        InvalidModelError: If it lacks keys or values, or has more of one than of the other.
    """
    attrs = node.attrs
    if "classes_strings" in attrs:  # operator set 1: names count from 0 on
        names = as_texts(attrs["classes_strings"])
        numbers = np.arange(len(names))
        keys, values = (names, numbers) if dtype == "object" else (numbers, names)
    else:
        keys, values = _column(node, "keys"), _column(node, "values")
    if len(keys) != len(values):
        raise InvalidModelError(
            f"LabelEncoder node {node.name!r} has {counted(len(keys), 'key')} and {counted(len(values), 'value')}",
            "export the model again",
        )
    return keys, np.concatenate([_default(node, values.dtype), values])


def as_texts(values: Any) -> Array:
    """Return texts, which models may hold as bytes, as an array."""
    found = np.empty(len(values), object)
    found[:] = [each.decode() if isinstance(each, bytes) else str(each) for each in values]
    return found


def _column(node: Node, side: str) -> Array:
    if f"{side}_tensor" in node.attrs:
        return np.asarray(node.attrs[f"{side}_tensor"]).reshape(-1)
    for name, dtype in _KINDS.items():
        values = node.attrs.get(f"{side}_{name}", ())
        if len(values):
            return as_texts(values) if dtype == "object" else np.array(values, dtype)
    raise InvalidModelError(f"LabelEncoder node {node.name!r} has no {side}", "export the model again")


def _default(node: Node, dtype: np.dtype[Any]) -> Array:
    if "default_tensor" in node.attrs:
        return np.asarray(node.attrs["default_tensor"]).reshape(-1)[:1].astype(dtype)
    kind = "float32" if dtype.kind == "f" else "int64" if dtype.kind in "iu" else "object"
    name, standard = _DEFAULTS[kind]
    value = node.attrs.get(name, standard)
    return as_texts([value]) if kind == "object" else np.array([value], dtype)


def pixel_places(extent: int, aligned: bool) -> Array:
    """Return the places of ``extent`` pixels between -1 and 1: of their centres, or with the outermost at the ends."""
    if aligned:
        return np.linspace(-1.0, 1.0, extent) if extent > 1 else np.zeros(extent)
    return (2 * np.arange(extent) + 1) / extent - 1
