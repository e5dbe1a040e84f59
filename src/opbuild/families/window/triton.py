"""Pools of plain values in Triton: a tile of a plane's outputs, one tap after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl

from opbuild.backend.triton.kernel import ADDRESS, EXTENT, STRIDE, Argument, Tiles, TritonKernel
from opbuild.backend.triton.rows import computed_in, root, split_known
from opbuild.kernel.opdesc import OpDesc

_X = ("i", "j", "k", "kw", "kh", "kd", "plane")
"""Dimensions of x: those of outputs, of taps, and planes."""

_EXTRA: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "average": {"count": _X[:3]},
    "place": {"place": _X[:6], "start": _X[6:]},
}
"""Further operands of a kind, with their dimensions."""


def define(desc: OpDesc) -> TritonKernel:
    """Return the kernel of a descriptor."""
    kind, out = str(desc.attrs["kind"]), len(desc.inputs)
    operands = {"x": _X, **_EXTRA.get(kind, {}), "out": (*_X[:3], _X[6])}
    parameters = {
        **{name: Argument(ADDRESS, number) for number, name in enumerate(operands)},
        **{name: Argument(EXTENT, out, dim) for dim, name in enumerate(("width", "height", "depth"))},
        **{name: Argument(EXTENT, 0, dim) for dim, name in enumerate(_X[3:6], 3)},
        **{
            f"{name}_{of}": Argument(STRIDE, number, dim)
            for number, (name, dims) in enumerate(operands.items())
            for dim, of in enumerate(dims)
        },
    }
    given, known = split_known(desc, parameters)
    columns, rows = int(desc.variant["columns"]), int(desc.variant["rows"])
    dtype = desc.inputs[0].dtype
    constants: dict[str, Any] = {
        **known,
        "KIND": kind,
        "ELEMENT": computed_in(desc) if "float" in dtype else getattr(tl, dtype),
        "COLUMNS": columns,
        "ROWS": rows,
    }
    function = {"average": average_of_windows, "place": places_in_windows}.get(kind, windows)
    grid = [[Tiles(out, 0, columns), Tiles(out, 1, rows), Tiles(out, 2), Tiles(out, 3)]]
    return TritonKernel(function, given, grid, constants, warps=int(desc.variant["warps"]))


@triton.jit
def windows(
    x, out, width, height, depth, kw, kh, kd,
    x_i, x_j, x_k, x_kw, x_kh, x_kd, x_plane, out_i, out_j, out_k, out_plane,
    KIND: tl.constexpr, ELEMENT: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write the maximum or the norm of each window."""
    i, j, k, plane, inside = _outputs(width, height, depth, COLUMNS, ROWS)
    x += plane * x_plane + k * x_k + j * x_j + i * x_i
    total = _combined(x, inside, kw, kh, kd, x_kw, x_kh, x_kd, KIND, ELEMENT)
    if KIND == "l2":
        total = root(total)
    out += plane * out_plane + k * out_k + j * out_j + i * out_i
    tl.store(out, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def average_of_windows(
    x, count, out, width, height, depth, kw, kh, kd,
    x_i, x_j, x_k, x_kw, x_kh, x_kd, x_plane, count_i, count_j, count_k, out_i, out_j, out_k, out_plane,
    KIND: tl.constexpr, ELEMENT: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write the sum of each window, divided by its count."""
    i, j, k, plane, inside = _outputs(width, height, depth, COLUMNS, ROWS)
    x += plane * x_plane + k * x_k + j * x_j + i * x_i
    total = _combined(x, inside, kw, kh, kd, x_kw, x_kh, x_kd, KIND, ELEMENT)
    number = tl.load(count + k * count_k + j * count_j + i * count_i, mask=inside, other=1).to(ELEMENT)
    out += plane * out_plane + k * out_k + j * out_j + i * out_i
    tl.store(out, _quotient(total, number).to(out.dtype.element_ty), mask=inside)


@triton.jit
def places_in_windows(
    x, place, start, out, width, height, depth, kw, kh, kd,
    x_i, x_j, x_k, x_kw, x_kh, x_kd, x_plane,
    place_i, place_j, place_k, place_kw, place_kh, place_kd, start_plane, out_i, out_j, out_k, out_plane,
    KIND: tl.constexpr, ELEMENT: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write the place of the first of each window's greatest elements; a place of -1 is none."""
    i, j, k, plane, inside = _outputs(width, height, depth, COLUMNS, ROWS)
    x += plane * x_plane + k * x_k + j * x_j + i * x_i
    place += k * place_k + j * place_j + i * place_i
    greatest = tl.zeros((ROWS, COLUMNS), ELEMENT)
    where = tl.full((ROWS, COLUMNS), -1, tl.int64)
    for c in range(kd):
        for b in range(kh):
            for a in range(kw):
                value = tl.load(x + (c * x_kd + b * x_kh + a * x_kw), mask=inside, other=0).to(ELEMENT)
                number = tl.load(place + (c * place_kd + b * place_kh + a * place_kw), mask=inside, other=-1)
                is_better = value > greatest
                if value.dtype.is_floating():
                    is_better = is_better | ((value != value) & (greatest == greatest))
                is_better = (number >= 0) & ((where < 0) | is_better)
                greatest = tl.where(is_better, value, greatest)
                where = tl.where(is_better, number, where)
    out += plane * out_plane + k * out_k + j * out_j + i * out_i
    tl.store(out, where + tl.load(start + plane * start_plane), mask=inside)


@triton.jit
def _outputs(width, height, depth, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    """Return the places of a program's outputs, and which of them there are."""
    wide, high = tl.cdiv(width, COLUMNS), tl.cdiv(height, ROWS)
    tile = tl.program_id(0)
    i = (tile % wide) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tile = tile // wide
    j = (tile % high) * ROWS + tl.arange(0, ROWS)[:, None]
    tile = tile // high
    inside = (i < width) & (j < height)
    return i.to(tl.int64), j.to(tl.int64), (tile % depth).to(tl.int64), (tile // depth).to(tl.int64), inside


@triton.jit
def _combined(x, inside, kw, kh, kd, x_kw, x_kh, x_kd, KIND: tl.constexpr, ELEMENT: tl.constexpr):
    """Return the maximum, sum or sum of squares of all taps; NaN is greater than every number."""
    total = tl.load(x, mask=inside, other=0).to(ELEMENT)
    if KIND != "max":
        total = tl.zeros_like(total)
    for c in range(kd):
        for b in range(kh):
            for a in range(kw):
                value = tl.load(x + (c * x_kd + b * x_kh + a * x_kw), mask=inside, other=0).to(ELEMENT)
                if KIND == "max":
                    is_greater = value > total
                    if value.dtype.is_floating():
                        is_greater = is_greater | (value != value)
                    total = tl.where(is_greater, value, total)
                elif KIND == "l1":
                    total += tl.abs(value)
                elif KIND == "l2":
                    total += value * value
                else:
                    total += value
    return total


@triton.jit
def _quotient(x, y):
    """Return the quotient, rounded once."""
    if x.dtype == tl.float32:
        return tl.div_rn(x, y)
    else:
        return x / y
