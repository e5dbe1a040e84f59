"""Operators that make tensors of nothing, move elements, pick them or put them at indices, and sort."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opbuild.frontend.torch.builder import RULES, StepBuilder, Value, category, promoted, rule
from opbuild.graph.extents import is_open


@rule("full.default")
def full(of: StepBuilder, shape: Sequence[Any], value: Any, **_: Any) -> Value:
    """One number everywhere."""
    return of.expand(of.operand(value, of.dtype), shape)


@rule("arange.start_step")
def arange(of: StepBuilder, start: Any, end: Any, step: Any = 1, **_: Any) -> Value:
    """Numbers one after the other."""
    if not all(isinstance(each, int) or is_open([each]) for each in (start, end, step)):
        of.refuse("numbers with a fraction")
    bounds = [of("Squeeze", of.ints(each), of.ints(0)) for each in (start, end, step)]
    return of.cast(of("Range", *bounds), of.dtype)


@rule("empty.memory_format", "empty_permuted.default", "new_empty_strided.default", "empty_strided.default")
def empty(of: StepBuilder, *_: Any, **__: Any) -> Value:
    """Zeros, as nothing is said of the values."""
    kind = of.step.types[0]
    if kind is None or -1 in kind.shape:
        of.refuse("sizes that are open")
    return full(of, kind.shape, 0)


_FAR = 2**62


@rule("view.default", "_unsafe_view.default", "reshape.default", "view_copy.default")
def view(of: StepBuilder, x: Value, shape: Sequence[Any]) -> Value:
    """Another shape, of which one extent may be -1."""
    known = [each for each in shape if not _is_any(each)]
    if len(known) < len(shape):
        rest = prod(x.shape) // prod(known)
        shape = [rest if _is_any(each) else each for each in shape]
    return of.reshape(x, tuple(shape))


def _is_any(extent: Any) -> bool:
    return isinstance(extent, int) and extent == -1


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
    return of.expand(x, tuple(own if _is_any(each) else each for own, each in zip(padded, shape, strict=True)))


@rule("slice.Tensor")
def slice_(of: StepBuilder, x: Value, axis: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Value:
    """Every ``step``-th element from ``start`` on."""
    axis = of.axis(axis, len(x.shape))
    start = 0 if start is None else start
    is_to_end = end is None or (isinstance(end, int) and end >= _FAR)
    if isinstance(start, int) and start == 0 and step == 1 and (is_to_end or end >= x.shape[axis]):
        return x
    end = x.shape[axis] if is_to_end else end
    return of("Slice", x, of.ints(start), of.ints(end), of.ints(axis), of.ints(step))


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
    of.refuse_if(len(x.shape) != 4, "of other ranks than 4")
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
    last, first = (-1,) * len(listed), (-_FAR,) * len(listed)
    return of("Slice", x, of.ints(*last), of.ints(*first), of.ints(*listed), of.ints(*last))


@rule("diagonal.default", "diagonal_copy.default")
def diagonal(of: StepBuilder, x: Value, offset: int = 0, first: int = 0, second: int = 1) -> Value:
    """The diagonals of two dimensions, as the last one."""
    rank = len(x.shape)
    first, second = of.axis(first, rank), of.axis(second, rank)
    rows, columns = x.shape[first], x.shape[second]
    of.refuse_if(is_open((rows, columns)), "sizes that are open")
    others = [axis for axis in range(rank) if axis not in (first, second)]
    begin = max(0, -offset) * columns + max(0, offset)
    count = max(0, min(rows - max(0, -offset), columns - max(0, offset)))
    flat = of.reshape(of.transpose(x, (*others, first, second)), (*(x.shape[each] for each in others), rows * columns))
    places = [begin + index * (columns + 1) for index in range(count)]
    return of("Gather", flat, of.constant(places, "int64"), axis=len(others))


@rule("unfold.default", "unfold_copy.default")
def unfold(of: StepBuilder, x: Value, axis: int, size: int, step: int) -> Value:
    """The windows of a dimension, whose elements are a last one."""
    of.refuse_if(not x.shape or is_open(x.shape), "sizes that are open, or no dimensions")
    rank, axis = len(x.shape), of.axis(axis, len(x.shape))
    places = [[begin + each for each in range(size)] for begin in range(0, x.shape[axis] - size + 1, step)]
    windows = of("Gather", x, of.constant(places, "int64"), axis=axis)
    return of.transpose(windows, [each for each in range(rank + 1) if each != axis + 1] + [axis + 1])


_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


@rule("scatter_reduce.two")
def scatter_reduce(
    of: StepBuilder, x: Value, axis: int, indices: Value, source: Value, reduce: str, include_self: bool = True
) -> Value:
    """Elements joined with those at the place of each index, along a dimension."""
    of.refuse_if(reduce not in _REDUCTIONS or not include_self, "means, or without what was there")
    return _scattered(of, x, axis, indices, source, _REDUCTIONS[reduce])


def _scattered(of: StepBuilder, x: Value, axis: int, indices: Value, source: Any, reduction: str) -> Value:
    of.refuse_if(not x.shape or not indices.shape, "of tensors without dimensions")
    of.refuse_if(reduction != "none" and category(x.dtype) == 0, "of truth values")
    if isinstance(source, Value):
        of.refuse_if(is_open((*source.shape, *indices.shape)), "sizes that are open")
        if source.shape != indices.shape:
            rank = len(indices.shape)
            source = of("Slice", source, of.ints(*(0,) * rank), of.ints(*indices.shape))
    else:
        source = of.expand(of.operand(source, x.dtype), indices.shape)
    axis = of.axis(axis, len(x.shape))
    indices = of.in_range(indices, x.shape[axis])
    return of("ScatterElements", x, indices, source, axis=axis, reduction=reduction)


@rule("index_put.default", "_unsafe_index_put.default")
def index_put(
    of: StepBuilder, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    """Elements at the places that indices of the first dimensions name."""
    given = [each for each in indices if each is not None]
    if len(given) == 1 and given[0].dtype == "bool":
        return _masked(of, x, indices, given[0], values, accumulate)
    if any(each.dtype == "bool" for each in given) or given != list(indices)[: len(given)]:
        of.refuse("truth values, or dimensions that are not the first ones")
    if is_open((*x.shape, *values.shape, *(extent for each in given for extent in each.shape))):
        of.refuse("sizes that are open")
    places = stacked(of, given)
    updates = (*places.shape[:-1], *x.shape[len(given) :])
    return of("ScatterND", x, places, of.expand(values, updates), reduction="add" if accumulate else "none")


def stacked(of: StepBuilder, indices: Sequence[Value]) -> Value:
    """Return indices of several dimensions as rows of one tensor."""
    rank = max(len(each.shape) for each in indices)
    padded = [(1,) * (rank - len(each.shape)) + each.shape for each in indices]
    shape = tuple(max(extents, key=lambda extent: extent != 1) for extents in zip(*padded, strict=True))
    rows = [of.reshape(of.expand(of.cast(each, "int64"), shape), (*shape, 1)) for each in indices]
    return rows[0] if len(rows) == 1 else of("Concat", *rows, axis=rank)


def _masked(
    of: StepBuilder, x: Value, indices: Sequence[Value | None], mask: Value, values: Value, accumulate: bool
) -> Value:
    """Return ``x`` with one value wherever a mask of its first dimensions is."""
    if accumulate or indices[0] is None or values.type.size != 1:
        of.refuse("several values for truth values")
    mask = of.reshape(mask, mask.shape + (1,) * (len(x.shape) - len(mask.shape)))
    return of("Where", mask, of.reshape(values, ()), x)


@rule("slice_scatter.default")
def slice_scatter(
    of: StepBuilder, x: Value, source: Value, axis: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Value:
    """A part of a dimension replaced."""
    axis = of.axis(axis, len(x.shape))
    extent = x.shape[axis]
    of.refuse_if(is_open([extent, start or 0, end or 0, step]) or step != 1, "sizes that are open, or steps")
    begin, stop, _ = slice(start, end).indices(extent)
    stop = max(begin, stop)
    before = [of.part(x, axis, 0, begin)] if begin else []
    parts = [*before, of.cast(source, x.dtype), *([of.part(x, axis, stop, extent)] if stop < extent else ())]
    return parts[0] if len(parts) == 1 else of("Concat", *parts, axis=axis)


@rule("copy.default")
def copy(of: StepBuilder, x: Value, source: Value, non_blocking: bool = False) -> Value:
    """The source, written over a tensor."""
    return of.expand(of.cast(source, x.dtype), x.shape)


@rule("index_select.default")
def index_select(of: StepBuilder, x: Value, axis: int, indices: Value) -> Value:
    """Elements along a dimension."""
    axis = of.axis(axis, len(x.shape))
    return of("Gather", x, of.in_range(indices, x.shape[axis]), axis=axis) if x.shape else x


@rule("gather.default")
def gather(of: StepBuilder, x: Value, axis: int, indices: Value, sparse_grad: bool = False) -> Value:
    """An element for each index, along a dimension."""
    of.refuse_if(not x.shape or not indices.shape, "of tensors without dimensions")
    axis = of.axis(axis, len(x.shape))
    return of("GatherElements", x, of.in_range(indices, x.shape[axis]), axis=axis)


@rule("index.Tensor", "_unsafe_index.Tensor")
def index(of: StepBuilder, x: Value, indices: Sequence[Value | None]) -> Value:
    """Elements by indices along some dimensions, which meet as operands do."""
    used = [axis for axis, each in enumerate(indices) if each is not None]
    given = [each for each in indices if each is not None]
    of.refuse_if(any(each.dtype in ("bool", "uint8") for each in given), "truth values")
    if len(used) == 1:
        return of("Gather", x, given[0], axis=used[0])
    others = [axis for axis in range(len(x.shape)) if axis not in used]
    places = stacked(of, given)
    found = of("GatherND", of.transpose(x, (*used, *others)), places)
    if used != list(range(used[0], used[-1] + 1)):
        return found  # dimensions of indices that are apart stand first
    count = len(places.shape) - 1
    before = range(count, count + used[0])
    return of.transpose(found, (*before, *range(count), *range(count + used[0], len(found.shape))))


@rule("topk.default")
def topk(of: StepBuilder, x: Value, k: Any, axis: int = -1, largest: bool = True, is_sorted: bool = True) -> Any:
    """The greatest or smallest elements of a dimension, and where they are."""
    of.refuse_if(not x.shape or category(x.dtype) == 0, "of a number, or of truth values")
    return of.several("TopK", 2, x, of.ints(k), axis=of.axis(axis, len(x.shape)), largest=int(largest), sorted=1)


@rule("sort.default", "sort.stable")
def sort(of: StepBuilder, x: Value, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    """A dimension in order, and where its elements were; equal ones stay as they stood."""
    if not x.shape:
        return x, of.constant(0, "int64")
    return topk(of, x, x.shape[of.axis(dim, len(x.shape))], dim, descending)


@rule("bucketize.Tensor")
def bucketize(of: StepBuilder, x: Value, bounds: Value, out_int32: bool = False, right: bool = False) -> Value:
    """Between which bounds each element is; a NaN is after the last one."""
    of.refuse_if(is_open(bounds.shape) or bounds.shape == (0,), "no bounds, or how many is not known")
    kind = promoted((x, bounds))
    bounds = of.cast(bounds, kind)
    element = of.cast(of.reshape(x, (*x.shape, 1)), kind)
    after = of("Greater" if right else "GreaterOrEqual", bounds, element)
    return of.sum(of.cast(of("Not", after), of.dtype), [len(x.shape)])


RULES.register_all(
    {
        "full_like.default": lambda of, x, value, **_: full(of, x.shape, value),
        "zeros.default": lambda of, shape, **_: full(of, shape, 0),
        "ones.default": lambda of, shape, **_: full(of, shape, 1),
        "zeros_like.default": lambda of, x, **_: full(of, x.shape, 0),
        "ones_like.default": lambda of, x, **_: full(of, x.shape, 1),
        "scalar_tensor.default": lambda of, value, **_: of.operand(value, of.dtype),
        "arange.default": lambda of, end, **_: arange(of, 0, end),
        "arange.start": lambda of, start, end, **_: arange(of, start, end),
        "permute.default permute_copy.default": lambda of, x, order: of.transpose(
            x, [of.axis(each, len(x.shape)) for each in order]
        ),
        "t.default": lambda of, x: of.transpose(x, (1, 0)) if len(x.shape) == 2 else x,
        "scatter.src scatter.value": lambda of, x, axis, indices, source: _scattered(
            of, x, axis, indices, source, "none"
        ),
        "scatter_add.default": lambda of, x, axis, indices, source: _scattered(of, x, axis, indices, source, "add"),
        "embedding.default": lambda of, weight, indices, padding=-1, by_frequency=False, sparse=False: of(
            "Gather", weight, of.in_range(indices, weight.shape[0]), axis=0
        ),
    },
    domain="aten",
)
