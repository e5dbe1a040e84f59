"""Calls of operators that move elements, make tensors, or pick by indices."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from generated.aten.drawing import ANY, FLOATS, NUMBERS, Call, Draw, calls


def _x(draw: Draw, least: int = 0, most: int = 4) -> torch.Tensor:
    return draw.tensor(draw.shape(least, most), draw.one_of(ANY))


@calls("view.default", "_unsafe_view.default", "reshape.default", "view_copy.default")
def _view(draw: Draw) -> Call:
    x = _x(draw).contiguous()
    shape = draw.choice(([x.numel()], [1, *x.shape], list(x.shape[::-1]), [*x.shape[:1], prod(x.shape[1:])]))
    if draw.some() and x.numel() and shape:
        shape[draw.randrange(len(shape))] = -1
    return (x, shape), {}


@calls("permute.default", "permute_copy.default")
def _permute(draw: Draw) -> Call:
    x = _x(draw)
    order = draw.sample(range(x.dim()), x.dim())
    return (x, [axis - x.dim() if draw.some(0.3) else axis for axis in order]), {}


@calls("t.default")
def _t(draw: Draw) -> Call:
    return (_x(draw, 0, 2),), {}


@calls("transpose.int")
def _transpose(draw: Draw) -> Call:
    x = _x(draw)
    return (x, draw.axis(x.dim()), draw.axis(x.dim())), {}


@calls("unsqueeze.default")
def _unsqueeze(draw: Draw) -> Call:
    x = _x(draw)
    return (x, draw.axis(x.dim() + 1)), {}


@calls("squeeze.dim")
def _squeeze(draw: Draw) -> Call:
    x = _x(draw)
    return (x, draw.axis(x.dim())), {}


@calls("squeeze.dims")
def _squeeze_several(draw: Draw) -> Call:
    x = _x(draw)
    return (x, draw.axes(x.dim())), {}


@calls("squeeze.default")
def _squeeze_all(draw: Draw) -> Call:
    return (_x(draw),), {}


@calls("expand.default")
def _expand(draw: Draw) -> Call:
    shape = draw.shape()
    x = draw.tensor(draw.beside(shape), draw.one_of(ANY))
    behind = len(shape) - x.dim()
    kept = [-1 if place >= behind and x.shape[place - behind] == extent and draw.some(0.3) else extent
            for place, extent in enumerate(shape)]  # fmt: skip
    return (x, kept), {}


@calls("slice.Tensor")
def _slice(draw: Draw) -> Call:
    x = _x(draw, 1)
    bounds = [draw.choice((None, 0, 1, -1, 2, -2, 3, 100, -100, 2**63 - 1)) for _ in range(2)]
    return (x, draw.axis(x.dim()), *bounds, draw.choice((1, 1, 2, 3))), {}


@calls("select.int")
def _select(draw: Draw) -> Call:
    x = _x(draw, 1)
    axis = draw.axis(x.dim())
    extent = max(x.shape[axis], 1)
    return (x, axis, draw.randrange(-extent, extent)), {}


def _several(draw: Draw, same: bool) -> tuple[list[torch.Tensor], int]:
    shape = draw.shape(1)
    axis, dtype, found = draw.axis(len(shape)), draw.one_of(ANY), []
    for _ in range(draw.randint(1, 4)):
        own = list(shape)
        own[axis] = own[axis] if same else draw.randint(0, 3)
        found.append(draw.tensor(own, dtype if draw.some(0.8) else draw.one_of(NUMBERS)))
    return found, axis


@calls("cat.default")
def _cat(draw: Draw) -> Call:
    found, axis = _several(draw, same=False)
    if draw.some(0.2):
        found.insert(draw.randint(0, len(found)), torch.empty(0))
    return (found, axis), {}


@calls("stack.default")
def _stack(draw: Draw) -> Call:
    return _several(draw, same=True), {}


@calls("split.Tensor")
def _split(draw: Draw) -> Call:
    x = _x(draw, 1)
    return (x, draw.randint(1, 8), draw.axis(x.dim())), {}


@calls("split_with_sizes.default")
def _split_with_sizes(draw: Draw) -> Call:
    x = _x(draw, 1)
    axis = draw.axis(x.dim())
    first = draw.randint(0, x.shape[axis])
    return (x, [first, x.shape[axis] - first], axis), {}


@calls("unbind.int", "unbind_copy.int")
def _unbind(draw: Draw) -> Call:
    x = _x(draw, 1)
    return (x, draw.axis(x.dim())), {}


@calls("constant_pad_nd.default")
def _constant_pad(draw: Draw) -> Call:
    x = _x(draw, 1)
    pads = [draw.choice((0, 1, 2, -1, 3, 9)) for _ in range(2 * draw.randint(1, x.dim()))]
    return (x, pads, *draw.choice(((), (0,), (2,), (draw.number() if x.is_floating_point() else 1,)))), {}


@calls("repeat.default")
def _repeat(draw: Draw) -> Call:
    x = _x(draw, 0, 3)
    return (
        x,
        [draw.choice((1, 2, 3, 0) if draw.some(0.2) else (1, 2)) for _ in range(x.dim() + draw.randint(0, 1))],
    ), {}


@calls("pixel_shuffle.default")
def _pixel_shuffle(draw: Draw) -> Call:
    factor = draw.choice((1, 2, 3))
    lead = [draw.choice((1, 2)) for _ in range(draw.choice((0, 1, 1, 2)))]
    return (draw.tensor((*lead, draw.randint(1, 3) * factor**2, 2, 3), draw.one_of(ANY)), factor), {}


@calls("narrow_copy.default")
def _narrow(draw: Draw) -> Call:
    x = _x(draw, 1)
    axis = draw.axis(x.dim())
    start = draw.randint(0, x.shape[axis])
    length = draw.randint(0, x.shape[axis] - start)
    return (x, axis, start - x.shape[axis] if 0 < start < x.shape[axis] and draw.some() else start, length), {}


@calls("flip.default")
def _flip(draw: Draw) -> Call:
    x = _x(draw)
    return (x, draw.axes(x.dim())), {}


@calls("diagonal.default", "diagonal_copy.default")
def _diagonal(draw: Draw) -> Call:
    x = _x(draw, 2)
    first, second = draw.sample(range(x.dim()), 2)
    return (x, draw.randint(-4, 4), first, second - x.dim()), {}


@calls("unfold.default", "unfold_copy.default")
def _unfold(draw: Draw) -> Call:
    x = _x(draw)
    axis = draw.axis(x.dim())
    return (x, axis, draw.randint(0, x.shape[axis] if x.dim() else 1), draw.randint(1, 3)), {}


# -- making ------------------------------------------------------------------------------------------------------------


def _typed(draw: Draw) -> dict[str, Any]:
    return {} if draw.some(0.3) else {"dtype": draw.one_of(ANY)}


@calls("full.default")
def _full(draw: Draw) -> Call:
    return (draw.shape(), draw.choice((2, 0.5, True, -1, float("nan"), 0))), _safely(draw)


def _safely(draw: Draw) -> dict[str, Any]:
    return draw.choice(({}, {"dtype": draw.one_of(FLOATS)}))


@calls("full_like.default")
def _full_like(draw: Draw) -> Call:
    return (draw.tensor(draw.shape(), draw.one_of(FLOATS)), draw.number()), _safely(draw)


@calls("zeros.default", "ones.default")
def _filled(draw: Draw) -> Call:
    return (draw.shape(),), _typed(draw)


@calls("zeros_like.default", "ones_like.default")
def _filled_like(draw: Draw) -> Call:
    return (_x(draw),), _typed(draw)


@calls("scalar_tensor.default")
def _scalar_tensor(draw: Draw) -> Call:
    return (draw.number(),), _safely(draw)


def _numbers(draw: Draw) -> Any:
    return draw.choice((0, 3, 10, 7, 2.5, 4.0))


@calls("arange.default")
def _arange(draw: Draw) -> Call:
    return (_numbers(draw),), _typed(draw) if draw.some() else {}


@calls("arange.start")
def _arange_from(draw: Draw) -> Call:
    start = draw.choice((0, 1, -3, 0.5))
    return (start, start + _numbers(draw)), draw.choice(({}, {"dtype": draw.one_of(NUMBERS)}))


@calls("arange.start_step")
def _arange_by(draw: Draw) -> Call:
    start, step = draw.choice((0, 1, -3, 0.5)), draw.choice((1, 2, 3, -1, -2, 0.5))
    return (start, start + step * draw.randint(0, 5), step), draw.choice(({}, {"dtype": draw.one_of(FLOATS)}))


@calls("empty.memory_format")
def _empty(draw: Draw) -> Call:
    return (draw.shape(),), _typed(draw)


@calls("empty_permuted.default")
def _empty_permuted(draw: Draw) -> Call:
    shape = draw.shape()
    return (shape, draw.sample(range(len(shape)), len(shape))), _typed(draw)


@calls("empty_strided.default")
def _empty_strided(draw: Draw) -> Call:
    shape = draw.shape()
    return (shape, torch.empty(shape).stride()), _typed(draw)


@calls("new_empty_strided.default")
def _new_empty_strided(draw: Draw) -> Call:
    shape = draw.shape()
    return (_x(draw), shape, torch.empty(shape).stride()), _typed(draw)
