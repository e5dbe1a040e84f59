"""Halos of other values than zero: the padding of quantised numbers is their zero point.

A halo of zeros costs nothing (``OperandStorage``). Any other is written by who is about to read it, each time.
"""

from __future__ import annotations

from functools import partial

from opbuild.graph.extents import at_most
from opbuild.lowering.context import Lowering
from opbuild.lowering.operands import ZEROS, Blocked, BlockedPhase, OperandStorage, Plain
from opbuild.lowering.transfer import copy

Sides = tuple[int, int, int, int]


def with_halo(
    lowering: Lowering, value: Blocked, sides: Sides, filling: Plain, known: int | None, name: str
) -> Blocked:
    """Return a value that lies in a halo of one number: the value itself, or a copy if its halo has another number.

    Args:
        lowering: What the calls are emitted to.
        value: The value.
        sides: Width of the halo: left, top, right, bottom.
        filling: One element of the value's type: the number.
        known: The number if it is known.
        name: The value's name, for reports.
    """
    left, top, right, bottom = map(at_most, sides)  # one that follows from the size is filled as far as any reaches
    sides = left, top, right, bottom
    if not any(sides):
        return value
    owner, _ = value.storage.root()
    wanted = f"of {id(filling.storage)}" if known is None else str(known)
    if owner.halo_value not in (None, wanted):
        value = _copied(lowering, value, name)
        owner = value.storage
    owner.halo_value = wanted
    value.storage.grow_halo(*sides)
    if wanted != ZEROS:
        _fill(lowering, value, sides, filling, name)
    return value


def _copied(lowering: Lowering, value: Blocked, name: str) -> Blocked:
    dtype, count = value.storage.dtype, value.shape[0]
    target = Blocked(OperandStorage("temporary", dtype, value.shape, blocked=True), value.channels, value.padding_value)
    make = partial(copy, dtype=dtype, choose=lowering.choose)
    for image in lowering.images(count):
        lowering.emit(make, (value.window(image), target.window(image)), (name,))
    return target


def _fill(lowering: Lowering, value: Blocked, sides: Sides, filling: Plain, name: str) -> None:
    left, top, right, bottom = sides
    images, count, height, width = value.shape
    strips = (
        ((-left, -top), (left + width + right, top)),
        ((-left, height), (left + width + right, bottom)),
        ((-left, 0), (left, height)),
        ((width, 0), (right, height)),
    )
    make = partial(copy, dtype=value.storage.dtype, choose=lowering.choose)
    for image in lowering.images(images):
        for start, extents in strips:
            if all(extents):
                shape = (count, extents[1], extents[0], 16)
                source = Plain(filling.storage, shape, (0, 0, 0, 0), filling.offset)
                lowering.emit(make, (source, BlockedPhase(value, image, start, extents)), (name,))
