"""Indices that have a range: the inputs of operators that do, and the message for one that is outside.

``InRange`` (domain ``opbuild``) gives what it is given. It fails where an index is not one of so many elements as
``counts`` says, a number for each axis: of several, indices come in groups in the last dimension. Negative ones count
from the end with ``negative``. It has the name of the node that reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from opbuild.errors import OutOfRangeError
from opbuild.graph.types import IN_RANGE, Array, Node
from opbuild.platform.records import NamedTuple

DOMAIN = "opbuild"
UNCHECKED = "unchecked"
"""Attribute of operators that passes and gradients write: what is outside reads the nearest element, or is left out."""


class Bounds(NamedTuple):
    """The range of an input.

    Attributes:
        input: Which input.
        counts: Numbers of elements of which an index is one, see the module; they may be open extents.
        negative: Whether negative indices count from the end.
    """

    input: int
    counts: tuple[int, ...]
    negative: bool = True


class Outside(NamedTuple):
    """An index out of range, and the range, both ends included."""

    value: int
    least: int
    most: int

    def __str__(self) -> str:
        if self.most < self.least:
            return f"index {self.value} is out of range: there is nothing to choose from"
        return f"index {self.value} is out of range: it must be from {self.least} to {self.most}"


def is_check(node: Node) -> bool:
    """Return whether a node is ``InRange``."""
    return node.op_type == IN_RANGE and node.domain == DOMAIN


def outside(values: Array, counts: Sequence[int], *, negative: bool) -> Outside | None:
    """Return the first index out of range; None if there is none."""
    most = np.array([int(each) for each in counts])
    least = -most if negative else np.zeros_like(most)
    groups = values.reshape(-1, len(most))
    wrong = (groups < least) | (groups >= most)
    if not wrong.any():
        return None
    row, column = divmod(int(wrong.reshape(-1).argmax()), len(most))
    return Outside(int(groups[row, column]), int(least[column]), int(most[column]) - 1)


HINT = "give it indices in the range"
"""What to do about one that is outside."""


def out_of_range(name: str, found: Outside) -> OutOfRangeError:
    """Return the error of a node that would read an index out of range."""
    return OutOfRangeError(f"node {name!r}: {found}", HINT)


def require_indices(node: Node, inputs: Sequence[Array | None]) -> None:
    """Refuse indices that an operator is to read.

    Raises:
        OutOfRangeError: If one is out of range.
    """
    bounds = bounds_of(node, lambda index: np.shape(inputs[index]))  # type: ignore[arg-type]  # no sequence
    found = bounds and outside(np.asarray(inputs[bounds.input]), bounds.counts, negative=bounds.negative)
    if found:
        raise out_of_range(node.name, found)


def bounds_of(node: Node, shape_of: Shapes) -> Bounds | None:
    """Return the range of the indices that an operator reads, given its inputs' shapes; None if it reads none."""
    find = None if node.domain else _BOUNDS.get(node.op_type)
    return None if find is None or node.attrs.get(UNCHECKED) else find(node, shape_of)


LOSSES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
"""Operators whose indices may also be ``ignore_index``."""

Shapes = Callable[[int], tuple[int, ...]]


def _axis(node: Node, rank: int, default: int = 0) -> int:
    return int(node.attrs.get("axis", default)) % max(rank, 1)


def _has(node: Node, index: int) -> bool:
    return index < len(node.inputs) and bool(node.inputs[index])


def _bounds_along_axis(node: Node, shapes: Shapes) -> Bounds | None:
    """Gather, GatherElements and ScatterElements."""
    data = shapes(0)
    return Bounds(1, (data[_axis(node, len(data))],)) if data else None


def _vectors(node: Node, shapes: Shapes) -> Bounds | None:
    """GatherND and ScatterND."""
    first = int(node.attrs.get("batch_dims", 0))
    counts = shapes(0)[first : first + int(shapes(1)[-1])] if shapes(1) else ()
    return Bounds(1, counts) if counts else None


def _unpooled(node: Node, shapes: Shapes) -> Bounds | None:
    """MaxUnpool: places in the whole plane before pooling."""
    x, kernel = shapes(0), node.attrs["kernel_shape"]
    strides = node.attrs.get("strides") or (1,) * len(kernel)
    pads = node.attrs.get("pads") or (0,) * 2 * len(kernel)
    axes = zip(x[2:], strides, pads, pads[len(kernel) :], kernel, strict=False)
    whole = ((extent - 1) * step - before - after + size for extent, step, before, after, size in axes)
    return Bounds(1, (prod((*x[:2], *whole)),), negative=False)


def _written(node: Node, shapes: Shapes) -> Bounds | None:
    """TensorScatter: where as many are written as there are; around the end with ``circular``."""
    if not _has(node, 2) or node.text("mode", "linear") == "circular":
        return None
    axis = _axis(node, len(shapes(0)), -2)
    places = shapes(0)[axis] - shapes(1)[axis] + 1
    return Bounds(2, (places if places > 0 else 0,), negative=False)


_BOUNDS: dict[str, Callable[[Node, Shapes], Bounds | None]] = {
    **dict.fromkeys(("Gather", "GatherElements", "ScatterElements"), _bounds_along_axis),
    **dict.fromkeys(("GatherND", "ScatterND"), _vectors),
    **dict.fromkeys(("CumSum", "CumProd"), lambda _, shapes: Bounds(1, (len(shapes(0)),)) if shapes(0) else None),
    "DFT": lambda node, shapes: Bounds(2, (len(shapes(0)),)) if _has(node, 2) else None,
    "ReverseSequence": lambda node, shapes: Bounds(1, (shapes(0)[int(node.attrs.get("time_axis", 0))] + 1,), False),
    "RoiAlign": lambda _, shapes: Bounds(2, shapes(0)[:1], False),
    **dict.fromkeys(LOSSES, lambda _, shapes: Bounds(1, shapes(0)[1:2], False)),
    "MaxUnpool": _unpooled,
    "RotaryEmbedding": lambda node, shapes: Bounds(3, shapes(1)[:1], False) if _has(node, 3) else None,
    "TensorScatter": _written,
}
"""The range of what each operator reads: an axis, lengths, images of regions, classes, positions, places."""
