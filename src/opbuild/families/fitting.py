"""Operands of a device's call whose views are known: the strides and multiples for which code is made.

A processor that reads 16 bytes at once wants to know that rows begin at multiples of 16 bytes. Buffers do, everywhere;
where views begin in them, and how long rows are, only a call says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from opbuild.dtypes import itemsize
from opbuild.graph.extents import always_equal, divides, is_one
from opbuild.kernel.opdesc import FREE, OpDesc, Operand
from opbuild.platform.records import NamedTuple, replace

ALIGNED = 16
"""The number of which aligned addresses in bytes, extents and strides in elements are multiples."""


class Place(NamedTuple):
    """The place of an operand of a call.

    Attributes:
        offset: Its first element, counted from the start of memory that begins at a multiple of 16 bytes.
        dims: Extents and strides, innermost first; both may be open.
    """

    offset: int
    dims: tuple[tuple[int, int], ...]


class Divided(NamedTuple):
    """A call in two: of parts, and of all that was found of these.

    Attributes:
        first: What computes the parts.
        places: Where its operands lie: those of the call that it takes, and what it finds, dense memory of its own.
        second: What puts that together.
        parts: Where what was found lies for it.
        taken: How many operands of the call the first one takes; the second one's others are those behind them.
    """

    first: OpDesc
    places: Sequence[Place]
    second: OpDesc
    parts: Place
    taken: int


def fitted(desc: OpDesc, places: Sequence[Place], axes: Mapping[str, str]) -> tuple[OpDesc, tuple[str, ...]]:
    """Return a descriptor with all that is sure of a call's operands at every size, and the aligned ones by name.

    Those have an axis along which ``ALIGNED`` numbers at a time are adjacent and begin at a multiple of 16 bytes.

    Args:
        desc: A descriptor of a device.
        places: Where the operands lie.
        axes: For each operand a letter for each of its dimensions, innermost first: those of one letter have one
            extent. Operands without are left as they are.
    """
    named = [(axes.get(each.name, ""), each, place) for each, place in zip(desc.operands, places, strict=True)]
    adjacent = {each.name: axis for letters, each, place in named for axis in _aligned_axis(letters, each, place)}
    whole = {*adjacent.values()}
    operands = [_fitted(letters, each, place, whole) if letters else each for letters, each, place in named]
    count = len(desc.inputs)
    inputs, outputs = tuple(operands[:count]), tuple(operands[count:])
    return replace(desc, inputs=inputs, outputs=outputs), tuple(adjacent)


def _aligned_axis(letters: str, operand: Operand, place: Place) -> str:
    """Return the letter of the axis, if there is one."""
    if divides(ALIGNED, place.offset * itemsize(operand.dtype)):
        for number, (axis, (extent, stride)) in enumerate(zip(letters, place.dims, strict=False)):
            others = (step for other, (_, step) in enumerate(place.dims) if other != number)
            if is_one(stride) and divides(ALIGNED, extent) and all(divides(ALIGNED, step) for step in others):
                return axis
    return ""


def _fitted(letters: str, operand: Operand, place: Place, whole: Collection[str]) -> Operand:
    dims = (
        replace(dim, stride=_known(*real), multiple=ALIGNED if axis in whole else 1)
        for axis, dim, real in zip(letters, operand.dims, place.dims, strict=False)
    )
    return replace(operand, dims=tuple(dims))


def _known(extent: int, stride: int) -> int:
    """Return a stride that is 0 or 1, and not only for want of elements; else it is an argument."""
    if is_one(stride):
        return 1
    return 0 if always_equal(stride, 0) and not is_one(extent) else FREE
