"""Operators that only move elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.writing import StepBuilder, Value
from opbuild.graph.extents import is_open

_FAR = 2**62


@rule("view.default", "_unsafe_view.default", "reshape.default", "view_copy.default")
def view(of: StepBuilder, x: Value, shape: Sequence[Any]) -> Value:
    """Another shape, of which one extent may be -1."""
    known = [each for each in shape if not (isinstance(each, int) and each == -1)]
    if len(known) < len(shape):
        rest = prod(x.shape) // prod(known)
        shape = [rest if isinstance(each, int) and each == -1 else each for each in shape]
    return of.reshape(x, tuple(shape))


@rule("permute.default", "permute_copy.default")
def permute(of: StepBuilder, x: Value, order: Sequence[int]) -> Value:
    """Dimensions in another order."""
    return of.transpose(x, [of.axis(each, len(x.shape)) for each in order])


@rule("t.default")
def t(of: StepBuilder, x: Value) -> Value:
    """The transpose of a matrix."""
    return of.transpose(x, (1, 0)) if len(x.shape) == 2 else x


@rule("transpose.int")
def transpose(of: StepBuilder, x: Value, first: int, second: int) -> Value:
    """Two dimensions exchanged."""
    order = list(range(len(x.shape)))
    first, second = of.axis(first, len(order)), of.axis(second, len(order))
    if order:
        order[first], order[second] = second, first
    return of.transpose(x, order)


@rule("unsqueeze.default")
def unsqueeze(of: StepBuilder, x: Value, axis: int) -> Value:
    """A dimension of one element more."""
    axis = of.axis(axis, len(x.shape) + 1)
    return of.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


@rule("squeeze.dim", "squeeze.dims", "squeeze.default")
def squeeze(of: StepBuilder, x: Value, axes: Any = None) -> Value:
    """Without dimensions of one element."""
    rank = len(x.shape)
    listed = range(rank) if axes is None else [axes] if isinstance(axes, int) else axes
    gone = {of.axis(each, rank) for each in listed}
    return of.reshape(x, tuple(e for axis, e in enumerate(x.shape) if axis not in gone or e != 1))


@rule("expand.default")
def expand(of: StepBuilder, x: Value, shape: Sequence[Any], implicit: bool = False) -> Value:
    """Dimensions of one element repeated; -1 keeps an extent."""
    padded = (1,) * (len(shape) - len(x.shape)) + x.shape
    wanted = tuple(
        own if isinstance(each, int) and each == -1 else each for own, each in zip(padded, shape, strict=True)
    )
    if wanted == x.shape:
        return x
    return of("Expand", x, of.ints(*wanted))


@rule("slice.Tensor")
def slice_(of: StepBuilder, x: Value, axis: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Value:
    """Every ``step``-th element from ``start`` on."""
    axis = of.axis(axis, len(x.shape))
    start = 0 if start is None else start
    end = _FAR if end is None else end
    if isinstance(start, int) and start == 0 and step == 1 and (end is _FAR or end == _FAR or end >= x.shape[axis]):
        return x
    if not isinstance(end, int) or end < _FAR:
        return of("Slice", x, of.ints(start), of.ints(end), of.ints(axis), of.ints(step))
    return of("Slice", x, of.ints(start), of.ints(x.shape[axis]), of.ints(axis), of.ints(step))


@rule("select.int")
def select(of: StepBuilder, x: Value, axis: int, index: Any) -> Value:
    """One element of a dimension, which goes away."""
    axis = of.axis(axis, len(x.shape))
    begin = index + x.shape[axis] if index < 0 else index
    row = of("Slice", x, of.ints(begin), of.ints(begin + 1), of.ints(axis))
    return of.reshape(row, (*x.shape[:axis], *x.shape[axis + 1 :]))


@rule("cat.default")
def cat(of: StepBuilder, tensors: Sequence[Value], axis: int = 0) -> Value:
    """Tensors one after the other; those without elements of one dimension count for nothing."""
    parts = [of.cast(each, of.dtype) for each in tensors if each.shape != (0,)]
    if not parts:
        return of.cast(tensors[0], of.dtype)
    if len(parts) == 1:
        return parts[0]
    return of("Concat", *parts, axis=of.axis(axis, len(parts[0].shape)))


@rule("stack.default")
def stack(of: StepBuilder, tensors: Sequence[Value], axis: int = 0) -> Value:
    """Tensors along a new dimension."""
    axis = of.axis(axis, len(tensors[0].shape) + 1)
    return of("Concat", *(unsqueeze(of, of.cast(each, of.dtype), axis) for each in tensors), axis=axis)


@rule("split.Tensor")
def split(of: StepBuilder, x: Value, size: Any, axis: int = 0) -> tuple[Value, ...]:
    """Parts of ``size``, the last one perhaps smaller."""
    axis = of.axis(axis, len(x.shape))
    extent = x.shape[axis]
    if extent == 0:
        return (x,)
    sizes = [min(size, extent - begin) for begin in range(0, int(extent), int(size))]
    return split_with_sizes(of, x, sizes, axis)


@rule("split_with_sizes.default")
def split_with_sizes(of: StepBuilder, x: Value, sizes: Sequence[Any], axis: int = 0) -> tuple[Value, ...]:
    """Parts of these sizes."""
    axis = of.axis(axis, len(x.shape))
    return of.several("Split", len(sizes), x, of.ints(*sizes), axis=axis)


@rule("unbind.int", "unbind_copy.int")
def unbind(of: StepBuilder, x: Value, axis: int = 0) -> tuple[Value, ...]:
    """The elements of a dimension, which goes away."""
    return tuple(select(of, x, axis, index) for index in range(int(x.shape[of.axis(axis, len(x.shape))])))


@rule("constant_pad_nd.default")
def constant_pad(of: StepBuilder, x: Value, pads: Sequence[Any], value: Any = 0) -> Value:
    """Elements around, the last dimensions first; a negative number takes some away."""
    rank = len(x.shape)
    begins, ends = [0] * rank, [0] * rank
    for index in range(len(pads) // 2):
        begins[rank - 1 - index], ends[rank - 1 - index] = pads[2 * index], pads[2 * index + 1]
    return of("Pad", x, of.ints(*begins, *ends), of.constant(value, x.dtype))


@rule("repeat.default")
def repeat(of: StepBuilder, x: Value, times: Sequence[Any]) -> Value:
    """The whole several times along each dimension."""
    x = of.reshape(x, (1,) * (len(times) - len(x.shape)) + x.shape)
    return x if all(each == 1 for each in times) else of("Tile", x, of.ints(*times))


@rule("pixel_shuffle.default")
def pixel_shuffle(of: StepBuilder, x: Value, factor: int) -> Value:
    """Channels to blocks of pixels."""
    if len(x.shape) != 4:
        of.refuse("of other ranks than 4")
    return of("DepthToSpace", x, blocksize=factor, mode="CRD")


@rule("narrow_copy.default")
def narrow_copy(of: StepBuilder, x: Value, axis: int, start: Any, length: Any) -> Value:
    """A part of a dimension."""
    begin = start + x.shape[of.axis(axis, len(x.shape))] if start < 0 else start
    return slice_(of, x, axis, begin, begin + length)


@rule("flip.default")
def flip(of: StepBuilder, x: Value, axes: Sequence[int]) -> Value:
    """Dimensions the other way round."""
    listed = [of.axis(each, len(x.shape)) for each in axes]
    if not x.shape or not listed:
        return x
    count = len(listed)
    return of(
        "Slice", x, of.ints(*(-1,) * count), of.ints(*(-_FAR,) * count), of.ints(*listed), of.ints(*(-1,) * count)
    )


@rule("diagonal.default", "diagonal_copy.default")
def diagonal(of: StepBuilder, x: Value, offset: int = 0, first: int = 0, second: int = 1) -> Value:
    """The diagonals of two dimensions, as the last one."""
    rank = len(x.shape)
    first, second = of.axis(first, rank), of.axis(second, rank)
    rows, columns = x.shape[first], x.shape[second]
    if is_open((rows, columns)):
        of.refuse("sizes that are open")
    others = [axis for axis in range(rank) if axis not in (first, second)]
    begin = max(0, -offset) * columns + max(0, offset)
    count = max(0, min(rows - max(0, -offset), columns - max(0, offset)))
    flat = of.reshape(of.transpose(x, (*others, first, second)), (*(x.shape[each] for each in others), rows * columns))
    places = [begin + index * (columns + 1) for index in range(count)]
    return of("Gather", flat, of.constant(places, "int64"), axis=len(others))


@rule("unfold.default", "unfold_copy.default")
def unfold(of: StepBuilder, x: Value, axis: int, size: int, step: int) -> Value:
    """The windows of a dimension, whose elements are a last one."""
    if not x.shape or is_open(x.shape):
        of.refuse("sizes that are open, or no dimensions")
    rank, axis = len(x.shape), of.axis(axis, len(x.shape))
    places = [[begin + each for each in range(size)] for begin in range(0, x.shape[axis] - size + 1, step)]
    windows = of("Gather", x, of.constant(places, "int64"), axis=axis)
    return of.transpose(windows, [each for each in range(rank + 1) if each != axis + 1] + [axis + 1])
