"""Rows in kernels of Triton: what such a kernel is given, where rows begin, vectors of 16 bytes, roundings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import triton
import triton.language as tl

from opbuild.backend.triton.kernel import STRIDE, Argument, Tiles, TritonKernel
from opbuild.kernel.opdesc import FREE, OpDesc

VECTOR_BYTES = tl.constexpr(16)


def row_kernel(
    function: Any,
    desc: OpDesc,
    parameters: Mapping[str, Argument],
    grid: Sequence[Tiles],
    constants: Mapping[str, Any],
    warps: int = 4,
) -> TritonKernel:
    """Return a kernel of rows: the strides that its descriptor states are compiled in, as the extents of its tile."""
    given, known = split_known(desc, parameters)
    tile = {name.upper(): int(extent) for name, extent in desc.variant.items()}
    return TritonKernel(function, given, [grid], {**known, **tile, **constants}, warps=warps)


def split_known(desc: OpDesc, parameters: Mapping[str, Argument]) -> tuple[dict[str, Argument], dict[str, Any]]:
    """Return the numbers that a kernel is given, and those that its descriptor states, which are compiled in."""
    known = {name: _known(desc, each) for name, each in parameters.items()}
    given = {name: each for name, each in parameters.items() if known[name] is None}
    return given, {name: number for name, number in known.items() if number is not None}


def _known(desc: OpDesc, argument: Argument) -> int | None:
    if argument.kind != STRIDE:
        return None
    stride = desc.operands[argument.operand].dims[argument.dim].stride
    return None if stride == FREE else stride


def computed_in(desc: OpDesc) -> Any:
    """Return the type in which a kernel computes: float64 where it is precise, or its operands are; else float32."""
    return tl.float64 if desc.is_precise or desc.inputs[0].dtype == "float64" else tl.float32


@triton.jit
def first_row(program, rows, ROWS: tl.constexpr):
    """Return a program's first row, and its plane."""
    tiles = tl.cdiv(rows, ROWS)
    return (program % tiles).to(tl.int64) * ROWS, (program // tiles).to(tl.int64)


@triton.jit
def own_rows(program, rows, ROWS: tl.constexpr):
    """Return a program's rows, as a column, and its plane."""
    row, plane = first_row(program, rows, ROWS)
    return row + tl.arange(0, ROWS)[:, None], plane


@triton.jit
def has_vectors(row, extent):
    """Return whether adjacent elements from an address on are vectors of 16 bytes, none of them in part."""
    ITEM: tl.constexpr = row.dtype.element_ty.primitive_bitwidth // 8
    return (row.to(tl.int64, bitcast=True) | (extent * ITEM)) % VECTOR_BYTES == 0


@triton.jit
def in_vectors(row, extent):
    """Return an address and an extent for which ``has_vectors`` is true, as the compiler believes it."""
    ITEM: tl.constexpr = row.dtype.element_ty.primitive_bitwidth // 8
    whole = (row.to(tl.int64, bitcast=True) // VECTOR_BYTES * VECTOR_BYTES).to(row.dtype, bitcast=True)
    return tl.multiple_of(whole, VECTOR_BYTES), extent // (VECTOR_BYTES // ITEM) * (VECTOR_BYTES // ITEM)


@triton.jit
def rounded(x, ROUNDS: tl.constexpr):
    """Return the nearest number of a type of 16 bits, in the type that ``x`` has; ``x`` if no type is named."""
    if ROUNDS == "float16":
        x = x.to(tl.float32).to(tl.float16).to(x.dtype)
    elif ROUNDS == "bfloat16":
        x = x.to(tl.float32).to(tl.bfloat16).to(x.dtype)
    return x


@triton.jit
def root(x):
    """Return the square root, rounded once."""
    if x.dtype == tl.float32:
        return tl.sqrt_rn(x)
    else:
        return tl.sqrt(x)
