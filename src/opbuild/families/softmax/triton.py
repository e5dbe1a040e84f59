"""Softmax of rows, or of columns side by side, in Triton."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from opbuild.backend.triton.kernel import Tiles, TritonKernel, addresses, extents, strides
from opbuild.backend.triton.rows import computed_in, first_row, has_vectors, in_vectors, rounded, row_kernel
from opbuild.kernel.opdesc import OpDesc

LEAST = tl.constexpr(-float.fromhex("0x1.fffffep127"))
NOTHING = tl.constexpr(1e-30)
"""More than the sum of a row of which no weight is seen, and less than that of any other one."""


def define(desc: OpDesc) -> TritonKernel:
    """Return the kernel of a descriptor."""
    axis, row = (0, 1) if desc.attrs["axis"] == "inner" else (1, 0)
    parameters = {
        **addresses("x", "out"),
        **extents(0, rows=row, columns=axis),
        **strides("x", 0, row=row, at=axis, plane=2),
        **strides("out", 1, row=row, at=axis, plane=2),
    }
    constants: dict[str, Any] = {
        "KIND": computed_in(desc),
        "LOG": bool(desc.attrs["log"]),
        "ZEROS": str(desc.attrs.get("zeros", "")),
        "ROUNDS": str(desc.attrs.get("rounds", "")),
    }
    grid = [Tiles(1, row, desc.variant["rows"]), Tiles(1, 2)]
    return row_kernel(softmax, desc, parameters, grid, constants, warps=8 if axis == 0 else 4)


@triton.jit
def softmax(
    x, out, rows, columns, x_row, x_at, x_plane, out_row, out_at, out_plane,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
    KIND: tl.constexpr, LOG: tl.constexpr, ZEROS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Softmax of ``ROWS`` rows."""
    row, plane = first_row(tl.program_id(0), rows, ROWS)
    x += plane * x_plane + row * x_row
    out += plane * out_plane + row * out_row
    if ROWS > 1:
        number = tl.arange(0, ROWS)[:, None]
        inside = number < rows - row
        _rows(x + number * x_row, out + number * out_row, inside, columns, x_at, out_at,
              BLOCK, KIND, LOG, ZEROS, ROUNDS)  # fmt: skip
    elif x_at == 1 and out_at == 1:
        if has_vectors(x, columns) & has_vectors(out, columns):
            x, columns = in_vectors(x, columns)
            out, columns = in_vectors(out, columns)
            _rows(x, out, row < rows, columns, x_at, out_at, BLOCK, KIND, LOG, ZEROS, ROUNDS)
        else:
            _rows(x, out, row < rows, columns, x_at, out_at, BLOCK, KIND, LOG, ZEROS, ROUNDS)
    else:
        _rows(x, out, row < rows, columns, x_at, out_at, BLOCK, KIND, LOG, ZEROS, ROUNDS)


@triton.jit
def _rows(
    x, out, inside, columns, x_at, out_at, BLOCK: tl.constexpr,
    KIND: tl.constexpr, LOG: tl.constexpr, ZEROS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Compute rows that begin at ``x``: read once where they fit in registers, else three times."""
    if columns <= BLOCK:
        _once(x, out, inside, columns, x_at, out_at, BLOCK, KIND, LOG, ZEROS, ROUNDS)
    else:
        _in_blocks(x, out, inside, columns, x_at, out_at, BLOCK, KIND, LOG, ZEROS, ROUNDS)


@triton.jit
def _once(
    x, out, inside, columns, x_at, out_at, BLOCK: tl.constexpr,
    KIND: tl.constexpr, LOG: tl.constexpr, ZEROS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    at, here, shown = _block(x, 0, inside, columns, x_at, BLOCK, KIND, ZEROS)
    top = _top(shown, ZEROS)
    power = _power(shown - top, ZEROS)
    factor = _factor(tl.sum(power, 1)[:, None], LOG, ZEROS)
    _store(out, at, here, out_at, shown - top, power, factor, LOG, ROUNDS)


@triton.jit
def _in_blocks(
    x, out, inside, columns, x_at, out_at, BLOCK: tl.constexpr,
    KIND: tl.constexpr, LOG: tl.constexpr, ZEROS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    _, _, largest = _block(x, 0, inside, columns, x_at, BLOCK, KIND, ZEROS)
    for start in range(BLOCK, columns, BLOCK):
        _, _, shown = _block(x, start, inside, columns, x_at, BLOCK, KIND, ZEROS)
        largest = tl.maximum(largest, shown)
    top = _top(largest, ZEROS)
    _, _, shown = _block(x, 0, inside, columns, x_at, BLOCK, KIND, ZEROS)
    total = _power(shown - top, ZEROS)
    for start in range(BLOCK, columns, BLOCK):
        _, _, shown = _block(x, start, inside, columns, x_at, BLOCK, KIND, ZEROS)
        total += _power(shown - top, ZEROS)
    factor = _factor(tl.sum(total, 1)[:, None], LOG, ZEROS)
    for start in range(0, columns, BLOCK):
        at, here, shown = _block(x, start, inside, columns, x_at, BLOCK, KIND, ZEROS)
        _store(out, at, here, out_at, shown - top, _power(shown - top, ZEROS), factor, LOG, ROUNDS)


@triton.jit
def _block(x, start, inside, columns, x_at, BLOCK: tl.constexpr, KIND: tl.constexpr, ZEROS: tl.constexpr):
    """Return places of rows, whether they are inside, and their elements: +inf instead of NaN that is to be 0."""
    at = start + tl.arange(0, BLOCK)[None, :]
    here = inside & (at < columns)
    values = tl.load(x + at.to(tl.int64) * x_at, mask=here, other=float("-inf")).to(KIND)
    if ZEROS == "nan":  # it hides all others
        values = tl.where(values != values, float("inf"), values)
    return at, here, values


@triton.jit
def _top(values, ZEROS: tl.constexpr):
    """Return the greatest element of each row; a finite one, of which -inf is far, if weights are to be 0."""
    top = tl.max(values, 1)[:, None]
    return tl.maximum(top, LEAST) if ZEROS != "" else top


@triton.jit
def _power(shifted, ZEROS: tl.constexpr):
    """Return powers; 0 instead of NaN if that is to be 0."""
    power = tl.exp(shifted)
    return tl.where(shifted != shifted, 0.0, power) if ZEROS == "nan" else power


@triton.jit
def _factor(total, LOG: tl.constexpr, ZEROS: tl.constexpr):
    """Return the factor of powers, or the logarithm of their sum."""
    if LOG:
        return tl.log(total)
    elif ZEROS != "":
        return tl.where(total < NOTHING, 0.0, 1.0 / total)
    else:
        return 1.0 / total


@triton.jit
def _store(out, at, inside, step, shifted, power, factor, LOG: tl.constexpr, ROUNDS: tl.constexpr):
    value = shifted - factor if LOG else power * factor
    tl.store(out + at.to(tl.int64) * step, rounded(value, ROUNDS).to(out.dtype.element_ty), mask=inside)
