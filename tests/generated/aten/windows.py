"""Calls of convolutions, pools, normalizations and recurrent layers, with their backward operators."""

from __future__ import annotations

from typing import Any

import torch

from generated.aten.drawing import FLOATS, Call, Draw, calls

_WIDE = (torch.float32, torch.float32, torch.float32, torch.float64)


def _image(draw: Draw, rank: int, dtypes: Any = _WIDE, special: float = 0.0, batch: float = 0.9) -> torch.Tensor:
    lead = (draw.choice((1, 2)), draw.choice((1, 3))) if draw.some(batch) else (3,)
    space = tuple(draw.choice((1, 2, 4, 5, 7)) for _ in range(rank))
    return draw.tensor((*lead, *space), draw.one_of(dtypes), special, 1)


def _each(draw: Draw, rank: int, *values: int) -> list[int]:
    """Return a number for each dimension, or one for all."""
    return [draw.choice(values) for _ in range(draw.choice((1, rank)))]


def _window(draw: Draw, rank: int) -> tuple[Any, ...]:
    """Return window, strides, and pads of at most half a window."""
    kernel = _each(draw, rank, 1, 2, 3)
    strides = draw.choice(([], _each(draw, rank, 1, 2, 3)))
    full = kernel * (rank // len(kernel))
    return kernel, strides, [draw.randint(0, taps // 2) for taps in full]


def _dilated(draw: Draw, x: torch.Tensor, rank: int) -> tuple[Any, ...]:
    """Return a window with dilations, which never lies in the padding with all its taps: torch names no place then."""
    kernel, strides, pads = _window(draw, rank)
    is_safe = not any(pads) or min(x.shape[-rank:]) > 1
    return kernel, strides, pads, _each(draw, rank, 1, 1, 2) if is_safe else [1]


def _with_one_nan(x: torch.Tensor) -> torch.Tensor:
    """Return an image with at most one NaN: of several torch names the last, ONNX's operator the first."""
    return torch.where(x.isnan().flatten().cumsum(0).reshape(x.shape) > 1, 0.5, x).to(x.dtype)


def _pools(rank: int) -> None:
    @calls(f"avg_pool{rank}d.default")
    def average(draw: Draw) -> Call:
        x = _image(draw, rank, (*FLOATS, torch.int64) if draw.some(0.2) else FLOATS, 0.05)
        divisor = [draw.choice((None, None, 3, -2))] if rank > 1 else []
        return (x, *_window(draw, rank), draw.flag(), draw.flag(), *divisor), {}

    name = "adaptive_avg_pool1d" if rank == 1 else f"_adaptive_avg_pool{rank}d"

    @calls(f"{name}.default")
    def adaptive(draw: Draw) -> Call:
        x = _image(draw, rank, FLOATS, 0.05)
        return (x, [draw.choice((1, 2, 3, 5, 7)) for _ in range(rank)]), {}

    if rank == 1:
        return

    @calls(f"avg_pool{rank}d_backward.default")
    def average_backward(draw: Draw) -> Call:
        x, rest = _image(draw, rank), (*_window(draw, rank), draw.flag(), draw.flag(), None)
        made = getattr(torch.ops.aten, f"avg_pool{rank}d")(x, *rest)
        return (draw.plain(made.shape, x.dtype), x, *rest), {}

    @calls(f"_adaptive_avg_pool{rank}d_backward.default")
    def adaptive_backward(draw: Draw) -> Call:
        x = _image(draw, rank)
        sizes = [draw.choice([e for e in range(1, extent + 1) if extent % e == 0 or draw.some(0.1)])
                 for extent in x.shape[-rank:]]  # fmt: skip
        return (draw.plain((*x.shape[:-rank], *sizes), x.dtype), x), {}

    @calls(f"max_pool{rank}d_with_indices.default")
    def greatest(draw: Draw) -> Call:
        x = _with_one_nan(_image(draw, rank, FLOATS, 0.1))
        return (x, *_dilated(draw, x, rank), draw.flag()), {}

    @calls(f"max_pool{rank}d_with_indices_backward.default")
    def greatest_backward(draw: Draw) -> Call:
        x = _image(draw, rank).contiguous()
        rest = *_dilated(draw, x, rank), draw.flag()
        found, places = getattr(torch.ops.aten, f"max_pool{rank}d_with_indices")(x, *rest)
        strides = rest[1] or rest[0]
        return (draw.plain(found.shape, x.dtype), x, rest[0], strides, *rest[2:], places), {}

    @calls(f"adaptive_max_pool{rank}d.default")
    def adaptive_greatest(draw: Draw) -> Call:
        x = _image(draw, rank, FLOATS, 0.1)
        return (x, [draw.choice((1, 2, 3, 5, 7)) for _ in range(rank)]), {}


for _rank in (1, 2, 3):
    _pools(_rank)


def _convolved(draw: Draw, rank: int) -> tuple[Any, ...]:
    """Return data, weights, a bias or none, and the settings of a convolution or its transpose."""
    groups, transposed, dtype = draw.choice((1, 1, 2, 3)), draw.some(0.4), draw.one_of(_WIDE)
    inner, outer = draw.choice((1, 2)), draw.choice((1, 2))
    kernel = [draw.choice((1, 2, 3)) for _ in range(rank)]
    channels, outs = inner * groups, outer * groups
    shape = (channels, outer, *kernel) if transposed else (outs, inner, *kernel)
    x = draw.plain((draw.choice((1, 2)), channels, *(draw.choice((1, 3, 5, 6)) for _ in range(rank))), dtype)
    bias = draw.plain((outs,), dtype) if draw.some() else None
    strides = [draw.choice((1, 2, 3)) for _ in range(rank)]
    extra = [draw.randint(0, stride - 1) if transposed and draw.some(0.4) else 0 for stride in strides]
    settings = [draw.choice((0, 1, 2)) for _ in range(rank)], [draw.choice((1, 1, 2)) for _ in range(rank)]
    return x, draw.plain(shape, dtype), bias, strides, *settings, transposed, extra, groups


@calls("convolution.default")
def _convolution(draw: Draw) -> Call:
    return _convolved(draw, draw.choice((1, 2, 2, 3))), {}


@calls("convolution_backward.default")
def _convolution_backward(draw: Draw) -> Call:
    x, weight, bias, *rest = _convolved(draw, draw.choice((1, 2, 2, 3)))
    made = torch.ops.aten.convolution(x, weight, bias, *rest)
    wanted = [draw.some(0.8), draw.some(0.8), bias is not None]
    return (draw.plain(made.shape, x.dtype), x, weight, [] if bias is None else [len(bias)], *rest, wanted), {}


# -- normalizations ----------------------------------------------------------------------------------------------------

_EPSILONS = (1e-5, 0.1, 1e-3)


def _affine(draw: Draw, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    weight, bias = (draw.plain(shape, dtype) if draw.some(0.7) else None for _ in range(2))
    return weight, bias


def _batch(draw: Draw) -> torch.Tensor:
    """Return images of several values a channel: of one torch rounds what is 0 to something of its own."""
    shape = (draw.choice((2, 4)), draw.choice((1, 3, 4)), *(draw.choice((2, 3, 5)) for _ in range(draw.randint(0, 3))))
    return draw.plain(shape, draw.one_of(_WIDE)) + draw.choice((0, 5))


def _running(draw: Draw, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return draw.plain(x.shape[1:2], x.dtype), draw.plain(x.shape[1:2], x.dtype).abs()


@calls("_native_batch_norm_legit_no_training.default")
def _batch_norm(draw: Draw) -> Call:
    x = _batch(draw)
    return (x, *_affine(draw, x.shape[1:2], x.dtype), *_running(draw, x), 0.1, draw.choice(_EPSILONS)), {}


@calls("_native_batch_norm_legit_functional.default")
def _batch_norm_of_batch(draw: Draw) -> Call:
    x = _batch(draw)
    settings = draw.some(0.9), draw.choice((0.1, 0.0, 1.0)), draw.choice(_EPSILONS)
    return (x, *_affine(draw, x.shape[1:2], x.dtype), *_running(draw, x), *settings), {}


@calls("native_batch_norm_backward.default")
def _batch_norm_backward(draw: Draw) -> Call:
    x = _batch(draw)
    weight, (mean, variance) = _affine(draw, x.shape[1:2], x.dtype)[0], _running(draw, x)
    training, epsilon = draw.flag(), draw.choice(_EPSILONS[1:])
    made = torch.ops.aten._native_batch_norm_legit_functional(x, weight, None, mean, variance, True, 0.1, epsilon)
    wanted = [True, weight is not None, True]
    return (draw.plain(x.shape, x.dtype), x, weight, mean, variance, *made[1:3], training, epsilon, wanted), {}


def _layers(draw: Draw) -> tuple[torch.Tensor, list[int]]:
    shape = draw.shape(1, 4, empty=0.03)
    x = draw.plain(shape, draw.one_of(_WIDE)) * draw.choice((1, 1, 0, 10)) + draw.choice((0, 5))
    return x, list(shape[draw.randrange(len(shape)) :])


@calls("native_layer_norm.default")
def _layer_norm(draw: Draw) -> Call:
    x, shape = _layers(draw)
    return (x, shape, *_affine(draw, tuple(shape), x.dtype), draw.choice(_EPSILONS)), {}


@calls("native_layer_norm_backward.default")
def _layer_norm_backward(draw: Draw) -> Call:
    x, shape = _layers(draw)
    weight, bias = _affine(draw, tuple(shape), x.dtype)
    made = torch.ops.aten.native_layer_norm(x, shape, weight, bias, 0.1)
    wanted = [True, weight is not None, bias is not None]
    return (draw.plain(x.shape, x.dtype), x, shape, *made[1:], weight, bias, wanted), {}


def _groups(draw: Draw) -> tuple[torch.Tensor, int, int]:
    groups = draw.choice((1, 2, 3))
    space = [draw.choice((2, 3, 4)) for _ in range(draw.randint(0, 3))]
    x = draw.plain((draw.choice((1, 2)), groups * (draw.choice((1, 2)) if space else 2), *space), draw.one_of(_WIDE))
    return x.contiguous(), groups, x.shape[2:].numel()


@calls("native_group_norm.default")
def _group_norm(draw: Draw) -> Call:
    x, groups, space = _groups(draw)
    affine = _affine(draw, x.shape[1:2], x.dtype)
    return (x, *affine, x.shape[0], x.shape[1], space, groups, draw.choice(_EPSILONS)), {}


@calls("native_group_norm_backward.default")
def _group_norm_backward(draw: Draw) -> Call:
    x, groups, space = _groups(draw)
    weight, sizes = _affine(draw, x.shape[1:2], x.dtype)[0], (*x.shape[:2], space, groups)
    made = torch.ops.aten.native_group_norm(x, weight, None, *sizes, 0.1)
    return (
        draw.plain(x.shape, x.dtype).contiguous(),
        x,
        *made[1:],
        weight,
        *sizes,
        [True, weight is not None, True],
    ), {}


# -- tables and layers -------------------------------------------------------------------------------------------------


@calls("embedding_dense_backward.default")
def _embedding_backward(draw: Draw) -> Call:
    rows = draw.randint(1, 6)
    indices = draw.indices(draw.shape(0, 3, empty=0.05), rows, negative=False)
    dy = draw.plain((*indices.shape, draw.randint(1, 4)), draw.one_of(_WIDE))
    return (dy, indices, rows, draw.randint(-1, rows - 1), draw.some(0.1)), {}


def _lstm(draw: Draw) -> tuple[list[torch.Tensor], bool, int]:
    steps, batch, width, size = (draw.choice((1, 2, 3, 5)) for _ in range(4))
    shapes = (steps, batch, width), (4 * size, width), (4 * size, size), (4 * size,), (4 * size,), *[(batch, size)] * 2
    return [draw.plain(shape).contiguous() for shape in shapes], draw.flag(), size


@calls("mkldnn_rnn_layer.default")
def _lstm_layer(draw: Draw) -> Call:
    tensors, reverse, size = _lstm(draw)
    return (*tensors, reverse, [], 2, size, 1, True, False, False, False), {}


@calls("mkldnn_rnn_layer_backward.default")
def _lstm_layer_backward(draw: Draw) -> Call:
    tensors, reverse, size = _lstm(draw)
    made = torch.ops.aten.mkldnn_rnn_layer(*tensors, reverse, [], 2, size, 1, True, False, False, True)
    flows = [draw.plain(each.shape).contiguous() for each in made[:3]]
    settings = reverse, 2, size, 1, True, False, False, [], False
    return (*tensors, *made[:3], *flows, *settings, made[3]), {}
