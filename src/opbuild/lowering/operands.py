"""The memory of a network's values while it is lowered: storages, and references into them.

A storage becomes one buffer of the program. Two layouts exist:

* *plain*: row-major elements. A plain value is an offset and one stride a dimension, so slices, splits, transposes and
  broadcasts are references, not copies.
* *blocked* (NC1HWC0): a value ``(N, C, H, W)`` (or ``(N, C, W)``, with H = 1) lies as ``[N][C1][H'][W'][16]`` with
  ``C1 = ceil(C / 16)``. ``H'`` and ``W'`` include a halo of zeros, so that a convolution reads its padding from memory.

The halo of a storage grows as later consumers ask for it; that is why references are resolved to views only after the
last rule has run. A blocked storage may be a slice of channel blocks of another one (a concatenation without a copy);
it then shares the other one's halo.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from math import prod
from typing import Any

from opbuild.families.blocked import BLOCK
from opbuild.graph.extents import SymbolicExtent, always_equal, is_one, is_open, same_shape
from opbuild.graph.tables import Table
from opbuild.graph.types import Array, Node, TensorType
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.records import dataclass, field
from opbuild.program import BufferKind, View

ZEROS = "0"
"""The ``halo_value`` of memory whose halo is read as zeros."""


@dataclass(eq=False)
class OperandStorage:
    """Memory of one tensor, or of several that share it.

    Attributes:
        kind: As in ``Buffer``.
        dtype: Element type.
        shape: Plain: row-major shape. Blocked: ``(N, C1, H, W)``, halo excluded.
        blocked: Whether the layout is blocked.
        halo: Positions around each plane as ``[left, top, right, bottom]``; blocked only.
        halo_value: What the halo holds; of an owner only. ``ZEROS`` are there from the beginning; anything else is
            written by whoever reads it. None: zeros too, on which nobody depends.
        alias: The storage that contains this one, and the first element (plain) or channel block (blocked) of it.
        pack: For constants, as in ``Buffer``.
        source: For constants, as in ``Buffer``.
        table: For constants, as in ``Buffer``.
        unpacked: For constants, as in ``Buffer``: the value, and the attributes that differ.
    """

    kind: BufferKind
    dtype: str
    shape: tuple[int, ...]
    blocked: bool = False
    halo: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    halo_value: str | None = None
    alias: tuple[OperandStorage, int] | None = None
    pack: Callable[[], Array] | None = None
    source: Callable[[], Hashable] | None = None
    table: Table | None = None
    unpacked: tuple[Plain, Mapping[str, Any]] | None = None

    def root(self) -> tuple[OperandStorage, int]:
        """Return the storage that owns the memory, and where this one begins in it (elements or channel blocks)."""
        storage, start = self, 0
        while storage.alias is not None:
            storage, offset = storage.alias
            start += offset
        return storage, start

    def grow_halo(self, left: int, top: int, right: int, bottom: int) -> None:
        """Make the halo at least this wide on each side."""
        owner, _ = self.root()
        owner.halo = [enough(have, want) for have, want in zip(owner.halo, (left, top, right, bottom), strict=True)]

    @property
    def size(self) -> int:
        """Number of elements, padding included; of an owner only."""
        if not self.blocked:
            return prod(self.shape)
        n, c1, h, w = self.shape
        left, top, right, bottom = self.halo
        return n * c1 * (h + top + bottom) * (w + left + right) * BLOCK

    @property
    def zeroed(self) -> Hashable | None:
        """The geometry that must match for memory to be shared, if there are zeros to keep; of an owner only."""
        has_halo = is_open(self.halo) or any(self.halo)
        if not self.blocked or not has_halo or self.halo_value not in (None, ZEROS):
            return None
        return ("blocked", self.dtype, self.shape, tuple(self.halo))


@dataclass(frozen=True, eq=False)
class Plain:
    """A plain value: ``shape`` and ``strides`` (elements) are row-major; ``offset`` counts elements."""

    storage: OperandStorage
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def dense(self) -> bool:
        """Whether the elements are contiguous in row-major order."""
        return same_shape(self.strides, dense_strides(self.shape)) or prod(self.shape) == 0

    @property
    def has_channels_last(self) -> bool:
        """Whether it is an image whose channels, axis 1, lie innermost, everything contiguous, and not dense too."""
        is_image = len(self.shape) in (3, 4) and prod(self.shape) > 0 and not self.dense
        dims = zip(self.shape, self.strides, channels_last_strides(self.shape) if is_image else (), strict=False)
        return is_image and all(is_one(extent) or always_equal(own, last) for extent, own, last in dims)

    @property
    def whole(self) -> bool:
        """Whether the value is all of a temporary memory of its own, which may then become part of another one."""
        storage = self.storage
        is_own = storage.kind == "temporary" and storage.alias is None and not storage.blocked
        if not is_own or not always_equal(self.offset, 0) or not self.dense:
            return False
        return always_equal(prod(storage.shape), prod(self.shape)) and prod(self.shape) > 0

    def image(self, number: int) -> Plain:
        """Return an image ``(C, H, W)`` of a value of rank 3, whose height is 1, or 4."""
        (_, *rest), (step, *steps) = self.shape, self.strides
        if len(rest) == 2:
            rest, steps = [rest[0], 1, rest[1]], [steps[0], 0, steps[1]]
        return Plain(self.storage, tuple(rest), tuple(steps), self.offset + number * step)

    def resolve(self, index_of: Callable[[OperandStorage], int]) -> View:
        """Return the view, dimensions innermost first."""
        owner, start = self.storage.root()
        dims = tuple(zip(reversed(self.shape), reversed(self.strides), strict=True))
        empty = not prod(self.shape)  # it may begin beyond its memory, which may be empty too
        return View(index_of(owner), 0 if empty else start + self.offset, dims)


def new_dense(kind: BufferKind, type_: TensorType) -> Plain:
    """Return new memory for a value, contiguous and row-major."""
    return Plain(OperandStorage(kind, type_.dtype, type_.shape), type_.shape, dense_strides(type_.shape))


@dataclass(frozen=True, eq=False)
class Blocked:
    """A blocked value of ``channels`` channels; lanes of the last block beyond them hold ``padding_value``."""

    storage: OperandStorage
    channels: int
    padding_value: float = 0.0

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """``(N, C1, H, W)`` without the halo."""
        n, c1, h, w = self.storage.shape
        return n, c1, h, w

    def part(self, start: int, count: int) -> Blocked:
        """Return ``count`` channel blocks from ``start`` on."""
        n, _, h, w = self.shape
        inside = OperandStorage(
            self.storage.kind, self.storage.dtype, (n, count, h, w), blocked=True, alias=(self.storage, start)
        )
        return Blocked(inside, min(count * BLOCK, self.channels - start * BLOCK), self.padding_value)

    def window(
        self, n: int = 0, left: int = 0, top: int = 0, width: int | None = None, height: int | None = None
    ) -> BlockedPhase:
        """Return one image, from ``left``, ``top`` elements outside its interior, ``width`` by ``height`` elements."""
        _, _, h, w = self.shape
        count = (w if width is None else width, h if height is None else height)
        return BlockedPhase(self, n, (-left, -top), count)

    def planes(self, shape: tuple[int, int, int] | None = None) -> BlockedPlanes:
        """Return all images at once: blocks of all images are one dimension (they lie one after the other).

        Args:
            shape: ``(N, H, W)`` that extents of one are repeated to; by default none is.
        """
        return BlockedPlanes(self, shape)


@dataclass(frozen=True, eq=False)
class BlockedPhase:
    """``count`` positions of one image of a blocked value, every ``step``-th; pairs are (x, y), negative in a halo."""

    value: Blocked
    n: int
    start: tuple[int, int]
    count: tuple[int, int]
    step: tuple[int, int] = (1, 1)

    def resolve(self, index_of: Callable[[OperandStorage], int]) -> View:
        """Return the view ``(16, count x, count y, C1)``; the halo must be as wide as it reaches."""
        owner, first_block = self.value.storage.root()
        row, plane, image, origin = _blocked_strides(owner)
        offset = self.n * image + first_block * plane + origin + self.start[1] * row + self.start[0] * BLOCK
        across, down = (self.count[0], self.step[0] * BLOCK), (self.count[1], self.step[1] * row)
        return View(index_of(owner), offset, ((BLOCK, 1), across, down, (self.value.shape[1], plane)))


@dataclass(frozen=True, eq=False)
class BlockedTaps(BlockedPhase):
    """The elements that each output of a convolution reads of one image at each tap; ``start`` is the first tap's.

    Attributes:
        taps: Taps.
        dilation: Positions from one tap to the next.
    """

    taps: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)

    def resolve(self, index_of: Callable[[OperandStorage], int]) -> View:
        """Return the view ``(16, count x, count y, taps x, taps y, C1)``; the halo must be as wide as taps reach."""
        buffer, offset, dims = super().resolve(index_of)
        row = _blocked_strides(self.value.storage.root()[0])[0]
        taps = ((self.taps[0], self.dilation[0] * BLOCK), (self.taps[1], self.dilation[1] * row))
        return View(buffer, offset, (*dims[:3], *taps, dims[3]))


@dataclass(frozen=True, eq=False)
class BlockedImageTaps(BlockedTaps):
    """The elements that each output of a convolution reads at each tap, of the image ``n`` and of all behind it."""

    def resolve(self, index_of: Callable[[OperandStorage], int]) -> View:
        """Return the view ``(16, count x, count y, taps x, taps y, C1, N)``."""
        buffer, offset, dims = super().resolve(index_of)
        images = (self.value.shape[0] - self.n, _blocked_strides(self.value.storage.root()[0])[2])
        return View(buffer, offset, (*dims, images))


@dataclass(frozen=True, eq=False)
class BlockedPlanes:
    """All images of a blocked value; extents of one are repeated to those of ``shape``, ``(N, H, W)``, if any are."""

    value: Blocked
    shape: tuple[int, int, int] | None = None

    def resolve(self, index_of: Callable[[OperandStorage], int]) -> View:
        """Return the view ``(16, W, H, C1, N)`` of the interior."""
        owner, first_block = self.value.storage.root()
        row, plane, image, origin = _blocked_strides(owner)
        images, c1, *spatial = self.value.shape
        dims = list(zip((images, *spatial), (image, row, BLOCK), strict=True))
        if self.shape is not None:
            pairs = zip(dims, self.shape, strict=True)
            dims = [(own, step) if always_equal(own, to) else (to, 0) for (own, step), to in pairs]
        n, h, w = dims
        return View(index_of(owner), first_block * plane + origin, ((BLOCK, 1), w, h, (c1, plane), n))


@dataclass(frozen=True, eq=False)
class Gate:
    """A factor of each channel of a blocked value of one image, which the weights that read it take over.

    Attributes:
        node: The node that multiplies.
        data: The name of what it multiplies.
        value: The factors: a value of one position.
        outputs: Blocks of output channels of the weights.
    """

    node: str
    data: str
    value: Blocked
    outputs: int = 1

    def resolve(self, index_of: Callable[[OperandStorage], int]) -> View:
        """Return the view ``(16 out, 16 in, C1 in, C1 out)``, in which output channels are repeated."""
        buffer, offset, (lane, *_, block) = self.value.window().resolve(index_of)
        return View(buffer, offset, ((BLOCK, 0), lane, block, (self.outputs, 0)))


OperandRef = Plain | BlockedPhase | BlockedPlanes | Gate


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous row-major tensor."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous image ``(N, C, ...)`` whose channels lie innermost."""
    images, channels, *spatial = shape
    outer, *steps, inner = dense_strides((images, *spatial, channels))
    return outer, inner, *steps


def _blocked_strides(owner: OperandStorage) -> tuple[int, int, int, int]:
    """Return the strides of a row, a plane and an image, and the offset of the first interior element."""
    _, c1, h, w = owner.shape
    left, top, right, bottom = owner.halo
    row = (w + left + right) * BLOCK
    plane = (h + top + bottom) * row
    return row, plane, c1 * plane, top * row + left * BLOCK


def enough(one: Any, other: Any) -> Any:
    """Return a number that is never below two, which are not negative: the greater if one surely is, else the sum."""
    owner = next((each.owner for each in (one, other) if isinstance(each, SymbolicExtent)), None)
    if owner is None:
        return max(one, other)
    for greater, less in ((one, other), (other, one)):
        if owner.always(partial(operator.ge, greater, less)):
            return greater
    return one + other


Made = tuple[OpDesc, tuple[View, ...]]
"""A call of a kernel."""

MakeCall = Callable[[tuple[View, ...]], Made]
"""Makes the descriptor once the views are known; it may collapse or reorder dimensions of the views."""


@dataclass(frozen=True, eq=False)
class Pending:
    """A call of a kernel: its descriptor or a function that makes it, its operands, and the nodes that it computes."""

    make: MakeCall | OpDesc
    operands: tuple[OperandRef, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class PendingHost:
    """A call of the host backend: a node, and the places of its values; or a check of indices (``graph.indices``)."""

    node: Node
    inputs: tuple[Plain | None, ...]
    outputs: tuple[Plain | None, ...]
