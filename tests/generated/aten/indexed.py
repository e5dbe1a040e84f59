"""Calls of operators that take or put elements at indices, or put them in order."""

from __future__ import annotations

from typing import Any

import torch

from generated.aten.drawing import ANY, FLOATS, NUMBERS, Call, Draw, calls


@calls("embedding.default")
def _embedding(draw: Draw) -> Call:
    rows = draw.randint(1, 6)
    indices = draw.indices(draw.shape(0, 3), rows, negative=False)
    weight = draw.tensor((rows, draw.randint(1, 4)), draw.one_of(FLOATS))
    return (weight, indices.to(draw.choice((torch.int64, torch.int32))), draw.randint(-1, rows - 1)), {}


@calls("index_select.default")
def _index_select(draw: Draw) -> Call:
    x = draw.tensor(draw.shape(0, 4, empty=0), draw.one_of(ANY))
    axis = draw.axis(x.dim())
    count = draw.randint(0, 4) if x.dim() else 1
    indices = draw.indices((count,), x.shape[axis] if x.dim() else 1, negative=False)
    return (x, axis, indices.to(draw.choice((torch.int64, torch.int32)))), {}


def _along(draw: Draw, dtype: torch.dtype) -> tuple[torch.Tensor, int, torch.Tensor]:
    """Return a tensor, a dimension, and indices of it that are at most as large elsewhere."""
    x = draw.tensor(draw.shape(0 if draw.some(0.1) else 1, 4, empty=0), dtype)
    axis = draw.axis(x.dim())
    shape = [draw.randint(0 if draw.some(0.1) else 1, extent) for extent in x.shape]
    if x.dim():
        shape[axis] = draw.randint(1, 6)
    return x, axis, draw.indices(shape, x.shape[axis] if x.dim() else 1, negative=False)


@calls("gather.default")
def _gather(draw: Draw) -> Call:
    return _along(draw, draw.one_of(ANY)), {}


def _source(draw: Draw, indices: torch.Tensor, dtype: torch.dtype, spread: float = 3.0) -> torch.Tensor:
    return draw.tensor([extent + draw.choice((0, 0, 2)) for extent in indices.shape], dtype, spread=spread)


def _once(draw: Draw, x: torch.Tensor, axis: int, indices: torch.Tensor) -> torch.Tensor:
    """Return indices that name no place twice: which of two elements stays, nothing says."""
    if not x.dim():
        return indices
    count = min(x.shape[axis], indices.shape[axis])
    order = torch.tensor(draw.sample(range(x.shape[axis]), count))
    shape = [1] * x.dim()
    shape[axis] = count
    return (
        order.reshape(shape).expand([count if a == axis % x.dim() else e for a, e in enumerate(indices.shape)]).clone()
    )


@calls("scatter.src")
def _scatter(draw: Draw) -> Call:
    x, axis, indices = _along(draw, draw.one_of(ANY))
    indices = _once(draw, x, axis, indices)
    return (x, axis, indices, _source(draw, indices, x.dtype)), {}


@calls("scatter.value")
def _scatter_value(draw: Draw) -> Call:
    x, axis, indices = _along(draw, draw.one_of(ANY))
    return (x, axis, indices, draw.number() if x.is_floating_point() else 2), {}


@calls("scatter_add.default")
def _scatter_add(draw: Draw) -> Call:
    x, axis, indices = _along(draw, draw.one_of(ANY))
    return (x, axis, indices, _source(draw, indices, x.dtype, 1.0)), {}


@calls("scatter_reduce.two")
def _scatter_reduce(draw: Draw) -> Call:
    x, axis, indices = _along(draw, draw.one_of(NUMBERS))
    reduce = draw.choice(("sum", "prod", "amax", "amin", "mean"))
    return (x, axis, indices, _source(draw, indices, x.dtype, 1.0), reduce), {"include_self": draw.some(0.7)}


def _index(draw: Draw, x: torch.Tensor, negative: bool = True) -> list[Any]:
    """Return indices of some dimensions that meet as operands do; None where all are taken."""
    count = draw.randint(1, x.dim())
    shape = draw.shape(0, 2, empty=0.05)
    found: list[Any] = []
    for axis in range(count):
        wanted = axis == count - 1 or draw.some(0.7)
        found.append(draw.indices(draw.beside(shape), x.shape[axis], negative) if wanted else None)
    if draw.some(0.15):
        return [draw.tensor(x.shape[: draw.randint(1, x.dim())], torch.bool)]
    return found


@calls("index.Tensor", "_unsafe_index.Tensor")
def _index_call(draw: Draw) -> Call:
    x = draw.tensor(draw.shape(1, 4, empty=0), draw.one_of(ANY))
    indices = [each.to(torch.int32) if each is not None and each.dtype is torch.int64 and draw.some(0.2) else each
               for each in _index(draw, x)]  # fmt: skip
    return (x, indices), {}


@calls("index_put.default", "_unsafe_index_put.default")
def _index_put(draw: Draw) -> Call:
    """Draw places that are named twice only where the same is put there, or all is added."""
    x = draw.tensor(draw.shape(1, 4, empty=0), draw.one_of(ANY), special=0.05)
    indices = _index(draw, x)
    found = x[tuple(slice(None) if each is None else each for each in indices)]
    accumulate = draw.some(0.4) and x.dtype is not torch.bool
    shape = draw.beside(found.shape) if accumulate else ()
    return (x, indices, draw.tensor(shape, x.dtype, special=0.05), accumulate), {}


@calls("slice_scatter.default")
def _slice_scatter(draw: Draw) -> Call:
    x = draw.tensor(draw.shape(1, 4), draw.one_of(ANY))
    axis, step = draw.axis(x.dim()), draw.choice((1, 1, 1, 2))
    start, end = (draw.choice((None, 0, 1, -1, 2, -2, 100)) for _ in range(2))
    extent = len(range(*slice(start, end, step).indices(x.shape[axis])))
    shape = [extent if a == axis % x.dim() else e for a, e in enumerate(x.shape)]
    return (x, draw.tensor(shape, x.dtype if draw.some(0.8) else torch.float32), axis, start, end, step), {}


@calls("copy.default")
def _copy(draw: Draw) -> Call:
    shape = draw.shape()
    x, source = draw.tensor(shape, draw.one_of(ANY)), draw.plain(draw.beside(shape), draw.one_of(ANY))
    return (x, source.abs() if x.dtype is torch.uint8 and source.dtype is not torch.bool else source), {}


@calls("topk.default")
def _topk(draw: Draw) -> Call:
    """Draw elements of which none are equal: which of those comes first, torch does not say."""
    x = _distinct(draw, draw.shape(0, 3))
    axis = draw.axis(x.dim())
    k = draw.randint(0, x.shape[axis] if x.dim() else 1)
    return (x, k, axis, draw.flag()), {}


def _distinct(draw: Draw, shape: tuple[int, ...]) -> torch.Tensor:
    dtype = draw.choice(
        (torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int8, torch.uint8)
    )
    size = torch.Size(shape).numel()
    if size > 100:
        return _distinct(draw, shape[:2])
    found = torch.tensor(draw.sample(range(120), size), dtype=dtype).reshape(shape)
    found = found - 50 if dtype is not torch.uint8 else found
    if found.is_floating_point() and size and draw.some():
        flat = found.reshape(-1)
        for value in (float("nan"), float("inf"), -float("inf")):
            flat[draw.randrange(size)] = value
    return found


@calls("sort.default")
def _sort(draw: Draw) -> Call:
    x = _distinct(draw, draw.shape(0, 3))
    return (x, draw.axis(x.dim()), draw.flag()), {}


@calls("sort.stable")
def _sort_stably(draw: Draw) -> Call:
    x = draw.tensor(draw.shape(0, 3), draw.one_of(NUMBERS))
    return (x,), {"stable": True, "dim": draw.axis(x.dim()), "descending": draw.flag()}


@calls("bucketize.Tensor")
def _bucketize(draw: Draw) -> Call:
    dtype = draw.one_of((torch.float32, torch.float64, torch.int64, torch.int32))
    bounds = draw.plain((draw.randint(0, 5),), draw.choice((dtype, torch.float32)), 3).sort()[0]
    return (draw.tensor(draw.shape(), dtype), bounds), {"out_int32": draw.flag(), "right": draw.flag()}
