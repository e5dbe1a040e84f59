"""Calls of operators that reduce dimensions, run along them, or multiply matrices."""

from __future__ import annotations

from typing import Any

import torch

from generated.aten.drawing import ANY, FLOATS, INTEGERS, NUMBERS, Call, Draw, calls

_SUMS = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)


def _typed(draw: Draw, kinds: Any = (torch.float32, torch.float64)) -> dict[str, Any]:
    return {"dtype": draw.one_of(kinds)} if draw.some(0.2) else {}


@calls("mean.dim")
def _mean(draw: Draw) -> Call:
    x = draw.tensor(draw.shape(0, 5), draw.one_of(_SUMS), special=0.03)
    axes = draw.choice((None, draw.axes(x.dim()), draw.axes(x.dim(), 1)))
    return (x, axes, draw.flag()), _typed(draw)


@calls("mean.default")
def _mean_of_all(draw: Draw) -> Call:
    return (draw.tensor(draw.shape(), draw.one_of(_SUMS), special=0.03),), _typed(draw)


@calls("sum.dim_IntList")
def _sum(draw: Draw) -> Call:
    x = draw.tensor(draw.shape(), draw.one_of((*_SUMS, *INTEGERS, torch.bool)), special=0.03)
    axes = draw.choice((None, draw.axes(x.dim()), draw.axes(x.dim(), 1)))
    return (x, axes, draw.flag()), _typed(draw, (torch.float32, torch.int64, torch.float64))


@calls("sum.default")
def _sum_of_all(draw: Draw) -> Call:
    return (draw.tensor(draw.shape(), draw.one_of((*_SUMS, *INTEGERS, torch.bool)), special=0.03),), {}


@calls("amax.default", "amin.default")
def _extreme(draw: Draw) -> Call:
    x = draw.tensor(draw.shape(), draw.one_of(ANY), special=0.08)
    return (x, draw.axes(x.dim()), draw.flag()), {}


@calls("any.dim", "all.dim")
def _logical(draw: Draw) -> Call:
    x = draw.tensor(draw.shape(), draw.one_of(ANY))
    return (x, draw.axis(x.dim()), draw.flag()), {}


@calls("any.dims", "all.dims")
def _logical_of_several(draw: Draw) -> Call:
    x = draw.tensor(draw.shape(), draw.one_of(ANY))
    return (x, draw.choice((None, draw.axes(x.dim()))), draw.flag()), {}


@calls("any.default", "all.default", "max.default", "min.default")
def _of_all(draw: Draw) -> Call:
    return (draw.tensor(draw.shape(), draw.one_of(ANY), special=0.08),), {}


@calls("max.dim", "min.dim")
def _extreme_and_place(draw: Draw) -> Call:
    x = draw.tensor(draw.shape(), draw.one_of(NUMBERS), special=0.08)
    return (x, draw.axis(x.dim()), draw.flag()), {}


@calls("argmax.default", "argmin.default")
def _arg(draw: Draw) -> Call:
    x = draw.tensor(draw.shape(), draw.one_of(NUMBERS), special=0.08)
    return (x, draw.choice((None, draw.axis(x.dim()))), draw.flag()), {}


def _scores(draw: Draw) -> torch.Tensor:
    """Return the operand of softmax: ordinary numbers, or infinite ones and rows of -inf alone."""
    x = draw.tensor(draw.shape(), draw.one_of(FLOATS), special=0, spread=draw.choice((1.0, 30.0)))
    if x.numel() and draw.some(0.4):
        x = torch.where(draw.tensor(draw.beside(x.shape), torch.bool), x, draw.choice((-float("inf"), float("inf"))))
    return x


@calls("_softmax.default", "_log_softmax.default")
def _softmax(draw: Draw) -> Call:
    x = _scores(draw)
    return (x, draw.axis(x.dim()), False), {}


@calls("_safe_softmax.default")
def _safe_softmax(draw: Draw) -> Call:
    x = _scores(draw)
    return (x, draw.axis(x.dim())), _typed(draw)


@calls("cumsum.default")
def _cumsum(draw: Draw) -> Call:
    x = draw.tensor(draw.shape(), draw.one_of((*_SUMS, *INTEGERS, torch.bool)), special=0.03)
    return (x, draw.axis(x.dim())), _typed(draw)


@calls("cumprod.default")
def _cumprod(draw: Draw) -> Call:
    x = draw.tensor(draw.shape(), draw.one_of((torch.float32, torch.float64, torch.int64, torch.int32)), special=0.05)
    return (x, draw.axis(x.dim())), {}


@calls("prod.default")
def _product_of_all(draw: Draw) -> Call:
    return (_factor(draw),), {}


def _factor(draw: Draw) -> torch.Tensor:
    """Return a factor of products; those of 16 bits do not leave the type's range, in which torch multiplies."""
    dtype = draw.one_of((*_SUMS, *INTEGERS, torch.bool))
    is_narrow = dtype in (torch.float16, torch.bfloat16)
    return draw.tensor(draw.shape(0, 2 if is_narrow else 4), dtype, special=0 if is_narrow else 0.03, spread=1.2)


@calls("prod.dim_int")
def _product(draw: Draw) -> Call:
    x = _factor(draw)
    return (x, draw.axis(x.dim()), draw.flag()), {}


@calls("linalg_vector_norm.default")
def _norm(draw: Draw) -> Call:
    x = draw.tensor(draw.shape(), draw.one_of(_SUMS), special=0.05)
    order = draw.choice((2, 1, 0, 3, 0.5, -1, float("inf"), -float("inf"), 2.5, -2))
    return (x, order, draw.choice((None, draw.axes(x.dim(), 1))), draw.flag()), _typed(draw, (torch.float64,))


@calls("var_mean.correction", "var.correction")
def _variance(draw: Draw) -> Call:
    x = draw.plain(draw.shape(), draw.one_of((torch.float32, torch.float32, torch.float64)), 3)
    correction = draw.choice(({}, {"correction": 0}, {"correction": 1}, {"correction": 2}, {"correction": 0.5},
                              {"correction": 100}, {"correction": -1}))  # fmt: skip
    return (x, draw.choice((None, draw.axes(x.dim()), draw.axes(x.dim(), 1)))), {**correction, "keepdim": draw.flag()}


# -- products ----------------------------------------------------------------------------------------------------------


def _matrix(draw: Draw, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return draw.tensor(shape, dtype, special=0.01, spread=1)


def _sizes(draw: Draw) -> tuple[int, int, int]:
    found = [draw.choice((1, 2, 3, 8, 17)) for _ in range(3)]
    if draw.some(0.1):
        found[draw.randrange(3)] = 0
    return found[0], found[1], found[2]


def _factors(draw: Draw) -> dict[str, Any]:
    """Return factors; that of the product is not 0, of which torch makes NaN or not by how it multiplies."""
    return {
        name: draw.choice((2, 0.5, -1, 1 if name == "alpha" else 0)) for name in ("beta", "alpha") if draw.some(0.4)
    }


@calls("mm.default", "matmul.default")
def _mm(draw: Draw) -> Call:
    (m, k, n), dtype = _sizes(draw), draw.one_of(_SUMS)
    return (_matrix(draw, dtype, m, k), _matrix(draw, dtype, k, n)), {}


@calls("addmm.default")
def _addmm(draw: Draw) -> Call:
    (m, k, n), dtype = _sizes(draw), draw.one_of(_SUMS)
    bias = _matrix(draw, dtype, *draw.beside((m, n)))
    return (bias, _matrix(draw, dtype, m, k), _matrix(draw, dtype, k, n)), _factors(draw)


@calls("bmm.default")
def _bmm(draw: Draw) -> Call:
    (m, k, n), dtype, b = _sizes(draw), draw.one_of(_SUMS), draw.randint(1, 3)
    return (_matrix(draw, dtype, b, m, k), _matrix(draw, dtype, b, k, n)), {}


@calls("baddbmm.default")
def _baddbmm(draw: Draw) -> Call:
    (m, k, n), dtype, b = _sizes(draw), draw.one_of(_SUMS), draw.randint(1, 3)
    bias = _matrix(draw, dtype, *draw.beside((b, m, n)))
    return (bias, _matrix(draw, dtype, b, m, k), _matrix(draw, dtype, b, k, n)), _factors(draw)


@calls("addbmm.default")
def _addbmm(draw: Draw) -> Call:
    (m, k, n), dtype, b = _sizes(draw), draw.one_of(_SUMS[:3]), draw.randint(1, 3)
    bias = _matrix(draw, dtype, *draw.beside((m, n)))
    return (bias, _matrix(draw, dtype, b, m, k), _matrix(draw, dtype, b, k, n)), _factors(draw)


@calls("mv.default")
def _mv(draw: Draw) -> Call:
    (m, k, _), dtype = _sizes(draw), draw.one_of(_SUMS)
    return (_matrix(draw, dtype, m, k), _matrix(draw, dtype, k)), {}


@calls("dot.default")
def _dot(draw: Draw) -> Call:
    (_, k, _), dtype = _sizes(draw), draw.one_of(_SUMS)
    return (_matrix(draw, dtype, k), _matrix(draw, dtype, k)), {}


@calls("addmv.default")
def _addmv(draw: Draw) -> Call:
    (m, k, _), dtype = _sizes(draw), draw.one_of(_SUMS)
    bias = _matrix(draw, dtype, *draw.choice(((m,), (1,), ())))
    return (bias, _matrix(draw, dtype, m, k), _matrix(draw, dtype, k)), _factors(draw)


@calls("_scaled_dot_product_flash_attention_for_cpu.default")
def _attention(draw: Draw) -> Call:
    batch, heads, rows, columns, size = (draw.randint(1, 4) for _ in range(5))
    dtype = draw.one_of(_SUMS[:3])
    shared = draw.choice([each for each in range(1, heads + 1) if heads % each == 0])
    query = draw.plain((batch, heads, rows, size), dtype).contiguous()
    key, value = (draw.plain((batch, shared, columns, size), dtype).contiguous() for _ in range(2))
    causal, options = draw.some(0.3), dict[str, Any]()
    if not causal and draw.some():
        mask = draw.tensor((batch, heads, rows, columns) if draw.some() else (rows, columns), torch.bool)
        hidden = torch.where(mask, torch.zeros((), dtype=dtype), -float("inf"))
        options["attn_mask"] = mask if draw.some() else hidden.to(dtype)
    if draw.some(0.3):
        options["scale"] = draw.choice((0.5, 1.0, 2.0))
    return (query, key, value, 0.0, causal), options
