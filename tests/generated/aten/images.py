"""Calls of operators that resize, sample and pad images."""

from __future__ import annotations

from typing import Any

import torch

from generated.aten.drawing import FLOATS, Call, Draw, calls

_WIDE = (torch.float32, torch.float32, torch.float32, torch.float64)

FACTORS = (2.0, 1.5, 1.7, 0.5, 3.0, 0.6, 2.3, 1.0, 0.25, 1.25, 2.5, 0.37)
"""Factors of which many make extents that are no integers."""


def _image(draw: Draw, rank: int, dtypes: Any = _WIDE, special: float = 0.0) -> torch.Tensor:
    lead = (draw.choice((1, 2)), draw.choice((1, 3)))
    return draw.tensor((*lead, *(draw.choice((1, 2, 3, 5, 8)) for _ in range(rank))), draw.one_of(dtypes), special)


def _target(draw: Draw, x: torch.Tensor) -> tuple[list[int] | None, list[float] | None]:
    """Return a size, or factors, one for each dimension."""
    space = x.shape[2:]
    if draw.some(0.4):
        return [draw.choice((1, 2, 4, 7, 9, 13)) for _ in space], None
    factors = [draw.choice(FACTORS) for _ in space]
    if any(int(extent * factor) < 1 for extent, factor in zip(space, factors, strict=True)):
        factors = [2.5] * len(space)
    return None, factors


def _with_size(x: torch.Tensor, draw: Draw) -> tuple[list[int], tuple[float | None, ...]]:
    """Return a size, and the factors that it was made of, if it was, as the ``default`` overloads get them."""
    size, factors = _target(draw, x)
    if factors is None:
        assert size is not None
        return size, (None,) * len(size) if draw.some() else ()
    return [int(extent * factor) for extent, factor in zip(x.shape[2:], factors, strict=True)], tuple(factors)


def _nearest(rank: int) -> None:
    @calls(f"upsample_nearest{rank}d.default")
    def default(draw: Draw) -> Call:
        x = _image(draw, rank, (*FLOATS, torch.uint8), 0.1)
        size, factors = _with_size(x, draw)
        return (x, size, *factors), {}

    @calls(f"upsample_nearest{rank}d.vec")
    def vec(draw: Draw) -> Call:
        x = _image(draw, rank, (*FLOATS, torch.uint8), 0.1)
        return (x, *_target(draw, x)), {}


for _rank in (1, 2, 3):
    _nearest(_rank)


@calls("upsample_bilinear2d.default", "upsample_bicubic2d.default")
def _smooth(draw: Draw) -> Call:
    x = _image(draw, 2)
    size, factors = _with_size(x, draw)
    return (x, size, draw.flag(), *factors), {}


@calls("upsample_bilinear2d.vec", "upsample_bicubic2d.vec")
def _smooth_by(draw: Draw) -> Call:
    x = _image(draw, 2)
    size, factors = _target(draw, x)
    return (x, size, draw.flag(), factors), {}


def _grid(draw: Draw, x: torch.Tensor) -> torch.Tensor:
    """Return places inside and outside, some half way between two pixels or on one, some far away."""
    rank = x.dim() - 2
    shape = (x.shape[0], *(draw.randint(1, 4) for _ in range(rank)), rank)
    grid = draw.plain(shape, x.dtype, draw.choice((0.6, 1.5)))
    kind = draw.randrange(4)
    if kind == 0:  # multiples of a quarter of a pixel, as either way to align has them
        extents = torch.tensor(x.shape[:1:-1], dtype=x.dtype)
        places = torch.round((grid * 2 * extents) * 4) / 4
        grid = (2 * places + 1) / extents - 1 if draw.some() else places * 2 / (extents - 1).clamp(min=1) - 1
    elif kind == 1:
        grid = torch.where(draw.tensor(shape, torch.bool), grid, draw.choice((1.0, -1.0, 0.0, 0.5, 3.0, -7.0, 100.0)))
    return grid


def _grids(rank: int) -> None:
    @calls(f"grid_sampler_{rank}d.default")
    def forward(draw: Draw) -> Call:
        x = _image(draw, rank)
        modes = draw.randrange(3 if rank == 2 else 2), draw.randrange(3), draw.flag()
        return (x, _grid(draw, x), *modes), {}

    @calls(f"grid_sampler_{rank}d_backward.default")
    def backward(draw: Draw) -> Call:
        (x, grid, *modes), _ = forward(draw)
        dy = draw.plain((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
        return (dy, x, grid, *modes, [True, draw.flag()]), {}


_grids(2)
_grids(3)


def _pads(rank: int) -> None:
    def drawn(draw: Draw, kind: str, dtypes: Any) -> tuple[torch.Tensor, list[int]]:
        lead = (2, 3) if draw.some(0.8) else (3,)
        x = draw.tensor((*lead, *(draw.choice((1, 2, 4, 5)) for _ in range(rank))), draw.one_of(dtypes))
        pads = []
        for extent in reversed(x.shape[-rank:]):
            most = extent - 1 if kind == "reflection" else 3
            pads += [draw.randint(-1 if extent > 2 else 0, most) for _ in range(2)]
        return x, pads

    def both(kind: str) -> None:
        @calls(f"{kind}_pad{rank}d.default")
        def forward(draw: Draw) -> Call:
            return drawn(draw, kind, (*FLOATS, torch.int64, torch.int32)), {}

        @calls(f"{kind}_pad{rank}d_backward.default")
        def backward(draw: Draw) -> Call:
            x, pads = drawn(draw, kind, _WIDE)
            made = getattr(torch.ops.aten, f"{kind}_pad{rank}d")(x, pads)
            return (draw.plain(made.shape, x.dtype), x, pads), {}

    both("reflection")
    both("replication")


for _rank in (1, 2, 3):
    _pads(_rank)
