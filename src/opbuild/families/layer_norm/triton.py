"""Normalisations of rows in Triton: mean first, then the variance around it."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from opbuild.backend.triton.kernel import ADDRESS, EXTENT, STRIDE, Argument, Tiles, TritonKernel
from opbuild.backend.triton.rows import computed_in, has_vectors, in_vectors, root, rounded, row_kernel
from opbuild.kernel.opdesc import OpDesc

_OF = ("at", "next", "row", "plane")
"""The names of an operand's strides, innermost first."""


def define(desc: OpDesc) -> TritonKernel:
    """Return the kernel of a descriptor."""
    has_bias, output = bool(desc.attrs["bias"]), len(desc.inputs)
    operands = {"x": 0, "scale": 2, "bias": 3 if has_bias else 2, "out": output}
    parameters = {
        **{name: Argument(ADDRESS, number) for name, number in operands.items()},
        "epsilon": Argument(ADDRESS, 1),
        **{name: Argument(EXTENT, 0, dim) for dim, name in enumerate(("adjacent", "others", "rows"))},
        **{
            f"{name}_{of}": Argument(STRIDE, number, dim)
            for name, number in operands.items()
            for dim, of in enumerate(_OF)
        },
    }
    constants: dict[str, Any] = {
        "KIND": computed_in(desc),
        "CENTERED": bool(desc.attrs["centered"]),
        "BIAS": has_bias,
        "ROUNDS": str(desc.attrs.get("rounds", "")),
    }
    return row_kernel(layer_norm, desc, parameters, [Tiles(output, 2), Tiles(output, 3)], constants, warps=8)


@triton.jit
def layer_norm(
    x, scale, bias, out, epsilon, adjacent, others, rows,
    x_at, x_next, x_row, x_plane, scale_at, scale_next, scale_row, scale_plane,
    bias_at, bias_next, bias_row, bias_plane, out_at, out_next, out_row, out_plane,
    BLOCK: tl.constexpr, KIND: tl.constexpr,
    CENTERED: tl.constexpr, BIAS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Normalise a row of ``others`` times ``adjacent`` elements."""
    row, plane = (tl.program_id(0) % rows).to(tl.int64), (tl.program_id(0) // rows).to(tl.int64)
    x += row * x_row + plane * x_plane
    scale += row * scale_row + plane * scale_plane
    bias += row * bias_row + plane * bias_plane
    out += row * out_row + plane * out_plane
    small = tl.load(epsilon).to(KIND)
    if others == 1:
        whole = has_vectors(x, adjacent) & has_vectors(out, adjacent)
        if scale_at == 1:
            whole = whole & has_vectors(scale, adjacent)
        if bias_at == 1:
            whole = whole & has_vectors(bias, adjacent)
        if whole:
            x, adjacent = in_vectors(x, adjacent)
            out, adjacent = in_vectors(out, adjacent)
            if scale_at == 1:
                scale, adjacent = in_vectors(scale, adjacent)
            if bias_at == 1:
                bias, adjacent = in_vectors(bias, adjacent)
            _row(x, scale, bias, out, small, adjacent, x_at, scale_at, bias_at, out_at,
                 BLOCK, KIND, CENTERED, BIAS, ROUNDS)  # fmt: skip
        else:
            _row(x, scale, bias, out, small, adjacent, x_at, scale_at, bias_at, out_at,
                 BLOCK, KIND, CENTERED, BIAS, ROUNDS)  # fmt: skip
    else:
        _blocks(x, scale, bias, out, small, adjacent, others, x_at, x_next, scale_at, scale_next,
                bias_at, bias_next, out_at, out_next, BLOCK, KIND, CENTERED, BIAS, ROUNDS)  # fmt: skip


@triton.jit
def _row(
    x, scale, bias, out, small, adjacent, x_at, scale_at, bias_at, out_at,
    BLOCK: tl.constexpr, KIND: tl.constexpr,
    CENTERED: tl.constexpr, BIAS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Normalise adjacent elements: read once where they fit in registers, else three times."""
    if adjacent <= BLOCK:
        _once(x, scale, bias, out, small, adjacent, x_at, scale_at, bias_at, out_at,
              BLOCK, KIND, CENTERED, BIAS, ROUNDS)  # fmt: skip
    else:
        _blocks(x, scale, bias, out, small, adjacent, 1, x_at, 0, scale_at, 0, bias_at, 0, out_at, 0,
                BLOCK, KIND, CENTERED, BIAS, ROUNDS)  # fmt: skip


@triton.jit
def _once(
    x, scale, bias, out, small, adjacent, x_at, scale_at, bias_at, out_at, BLOCK: tl.constexpr, KIND: tl.constexpr,
    CENTERED: tl.constexpr, BIAS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    at = tl.arange(0, BLOCK)
    inside = at < adjacent
    count = adjacent.to(KIND)
    values = tl.load(x + at * x_at, mask=inside, other=0.0).to(KIND)
    if CENTERED:
        values = tl.where(inside, values - tl.sum(values, 0) / count, 0.0)
    factor = 1.0 / root(tl.sum(values * values, 0) / count + small)
    _store(values, factor, scale, bias, out, at, inside, scale_at, bias_at, out_at, KIND, BIAS, ROUNDS)


@triton.jit
def _blocks(
    x, scale, bias, out, small, adjacent, others, x_at, x_next, scale_at, scale_next,
    bias_at, bias_next, out_at, out_next, BLOCK: tl.constexpr, KIND: tl.constexpr,
    CENTERED: tl.constexpr, BIAS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    at = tl.arange(0, BLOCK)
    count = tl.cast(adjacent, KIND) * tl.cast(others, KIND)
    mean = tl.full((), 0.0, KIND)
    if CENTERED:
        total = tl.zeros((BLOCK,), KIND)
        for number in range(others):
            for start in range(0, adjacent, BLOCK):
                total += _values(x, number, start + at, adjacent, x_next, x_at, KIND)
        mean = tl.sum(total, 0) / count
    squares = tl.zeros((BLOCK,), KIND)
    for number in range(others):
        for start in range(0, adjacent, BLOCK):
            values = _values(x, number, start + at, adjacent, x_next, x_at, KIND)
            values = tl.where(start + at < adjacent, values - mean, 0.0)
            squares += values * values
    factor = 1.0 / root(tl.sum(squares, 0) / count + small)
    for number in range(others):
        far = tl.cast(number, tl.int64)
        for start in range(0, adjacent, BLOCK):
            values = _values(x, number, start + at, adjacent, x_next, x_at, KIND) - mean
            _store(values, factor, scale + far * scale_next, bias + far * bias_next, out + far * out_next,
                   start + at, start + at < adjacent, scale_at, bias_at, out_at, KIND, BIAS, ROUNDS)  # fmt: skip


@triton.jit
def _values(x, number, at, adjacent, x_next, x_at, KIND: tl.constexpr):
    return tl.load(x + tl.cast(number, tl.int64) * x_next + at * x_at, mask=at < adjacent, other=0.0).to(KIND)


@triton.jit
def _store(
    values, factor, scale, bias, out, at, inside, scale_at, bias_at, out_at,
    KIND: tl.constexpr, BIAS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    result = values * (factor * tl.load(scale + at * scale_at, mask=inside, other=0.0).to(KIND))
    if BIAS:
        result += tl.load(bias + at * bias_at, mask=inside, other=0.0).to(KIND)
    tl.store(out + at * out_at, rounded(result, ROUNDS).to(out.dtype.element_ty), mask=inside)
