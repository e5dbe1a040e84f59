"""Reductions of rows, or of columns side by side, in Triton. Terms are combined in an order that sizes alone decide."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import triton
import triton.language as tl

from opbuild.backend.triton.kernel import Tiles, TritonKernel, addresses, extents, strides
from opbuild.backend.triton.rows import computed_in, first_row, has_vectors, in_vectors, root, row_kernel
from opbuild.kernel.opdesc import OpDesc

_INNER = {"first": (0, None), "second": (1, None), "row": (2, 0), "near": (3, 1)}
_OUTER = {"row": (0, 0), "first": (1, None), "second": (2, None), "near": (3, 1), "far": (4, 2)}
"""The names of dimensions, with their numbers in the input and in the output, which has no reduced ones."""


def define(desc: OpDesc) -> TritonKernel:
    """Return the kernel of a descriptor."""
    is_inner = desc.attrs["layout"] == "inner"
    places = _INNER if is_inner else _OUTER
    kept = {name: out for name, (_, out) in places.items() if out is not None}
    parameters = {
        **addresses("x", "out"),
        **extents(0, **{f"{name}_extent": dim for name, (dim, _) in places.items() if name != "far"}),
        **strides("x", 0, **{name: dim for name, (dim, _) in places.items()}),
        **strides("out", 1, **kept),
    }
    constants: dict[str, Any] = {
        **({"x_far": 0, "out_far": 0} if is_inner else {}),
        "KIND": _kind(desc),
        "REDUCTION": desc.attrs["reduction"],
        "NEUTRAL": _neutral(desc),
    }
    grid = [Tiles(1, dim, desc.variant["rows"] if name == "row" else 1) for name, dim in kept.items()]
    return row_kernel(reduce, desc, parameters, grid, constants)


def _kind(desc: OpDesc) -> Any:
    dtype = desc.inputs[0].dtype
    return computed_in(desc) if "float" in dtype else tl.uint8 if dtype == "bool" else getattr(tl, dtype)


def _neutral(desc: OpDesc) -> float | int:
    """Return the neutral element: for extremes the least value, or the greatest."""
    reduction, dtype = desc.attrs["reduction"], desc.inputs[0].dtype
    if reduction not in ("max", "min", "log_sum_exp"):
        return 1 if reduction == "prod" else 0
    is_least = reduction != "min"
    if "float" in dtype:
        return -math.inf if is_least else math.inf
    limits = np.iinfo("uint8" if dtype == "bool" else dtype)
    return int(limits.min if is_least else limits.max)


@triton.jit
def reduce(
    x, out, first_extent, second_extent, row_extent, near_extent,
    x_first, x_second, x_row, x_near, x_far, out_row, out_near, out_far,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr, REDUCTION: tl.constexpr, NEUTRAL: tl.constexpr,
):  # fmt: skip
    """Reduce ``ROWS`` rows, each of two dimensions."""
    row, plane = first_row(tl.program_id(0), row_extent, ROWS)
    near, far = plane % near_extent, plane // near_extent
    x += row * x_row + near * x_near + far * x_far
    out += row * out_row + near * out_near + far * out_far
    if ROWS > 1:
        number = tl.arange(0, ROWS)[:, None]
        inside = number < row_extent - row
        _rows(x + number * x_row, out + number * out_row, inside, first_extent, second_extent, x_first, x_second,
              BLOCK, KIND, REDUCTION, NEUTRAL)  # fmt: skip
    elif x_first == 1:
        if (second_extent == 1) & has_vectors(x, first_extent):
            x, first_extent = in_vectors(x, first_extent)
            _rows(x, out, row < row_extent, first_extent, 1, 1, 0, BLOCK, KIND, REDUCTION, NEUTRAL)
        else:
            _rows(x, out, row < row_extent, first_extent, second_extent, 1, x_second, BLOCK, KIND, REDUCTION, NEUTRAL)
    else:
        _rows(x, out, row < row_extent, first_extent, second_extent, x_first, x_second,
              BLOCK, KIND, REDUCTION, NEUTRAL)  # fmt: skip


@triton.jit
def _rows(
    x, out, inside, first, second, x_first, x_second,
    BLOCK: tl.constexpr, KIND: tl.constexpr, REDUCTION: tl.constexpr, NEUTRAL: tl.constexpr,
):  # fmt: skip
    if REDUCTION == "log_sum_exp":
        # Shifted by the greatest element, so that no power overflows; not by an infinite one, which would make NaN.
        top = _total(x, inside, first, second, x_first, x_second, 0.0, BLOCK, KIND, "max", NEUTRAL)
        top = tl.where(tl.abs(top) < float("inf"), top, 0.0)
        value = _total(x, inside, first, second, x_first, x_second, top, BLOCK, KIND, REDUCTION, NEUTRAL)
        value = tl.log(value) + top
    else:
        value = _total(x, inside, first, second, x_first, x_second, 0.0, BLOCK, KIND, REDUCTION, NEUTRAL)
    if REDUCTION == "l2":
        value = root(value)
    elif REDUCTION == "log_sum":
        value = tl.log(value)
    elif REDUCTION == "mean":
        value = value / (tl.cast(first, KIND) * tl.cast(second, KIND))
    tl.store(out + tl.zeros(value.shape, tl.int32), value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _total(
    x, inside, first, second, x_first, x_second, shift,
    BLOCK: tl.constexpr, KIND: tl.constexpr, REDUCTION: tl.constexpr, NEUTRAL: tl.constexpr,
):  # fmt: skip
    """Return the combination of each row's terms, as a column."""
    at = tl.arange(0, BLOCK)[None, :]
    # Of the shape that terms have, and without a value before the first: there may be none.
    total = tl.where(inside & (at < 0), 0, _start(REDUCTION, NEUTRAL)).to(KIND)
    for number in range(second):
        row = x + tl.cast(number, tl.int64) * x_second
        for start in range(0, first, BLOCK):
            here = inside & (start + at < first)
            values = tl.load(row + (start + at).to(tl.int64) * x_first, mask=here, other=NEUTRAL).to(KIND)
            total = _combined(total, _term(values, shift, REDUCTION), REDUCTION)
    return _across(total, REDUCTION)[:, None]


@triton.jit
def _start(REDUCTION: tl.constexpr, NEUTRAL: tl.constexpr):
    return 0 if REDUCTION == "log_sum_exp" else NEUTRAL


@triton.jit
def _term(values, shift, REDUCTION: tl.constexpr):
    if REDUCTION == "l1" and not values.dtype.is_int_unsigned():
        values = tl.abs(values)
    elif REDUCTION == "l2" or REDUCTION == "sum_square":
        values = values * values
    elif REDUCTION == "log_sum_exp":
        values = tl.exp(values - shift)
    return values


@triton.jit
def _combined(a, b, REDUCTION: tl.constexpr):
    if REDUCTION == "max":
        return _greater(a, b)
    elif REDUCTION == "min":
        return _less(a, b)
    elif REDUCTION == "prod":
        return _product(a, b)
    else:
        return a + b


@triton.jit
def _across(total, REDUCTION: tl.constexpr):
    if REDUCTION == "prod":
        return tl.reduce(total, 1, _product)
    elif REDUCTION == "max" or REDUCTION == "min":
        found = tl.max(total, 1) if REDUCTION == "max" else tl.min(total, 1)
        if total.dtype.is_floating():
            has_nan = tl.max((total != total).to(tl.int32), 1) > 0
            found = tl.where(has_nan, float("nan"), found)
        return found
    else:
        return tl.sum(total, 1, dtype=total.dtype)


@triton.jit
def _greater(a, b):
    """Return the greater of two numbers, NaN if either is NaN."""
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def _less(a, b):
    """Return the smaller of two numbers, NaN if either is NaN."""
    return tl.where((a < b) | (a != a), a, b)


@triton.jit
def _product(a, b):
    return a * b
