"""The binaries that are carried: which kernel, with which tiles, for which element type and alignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ALIGNED = 16
"""What pointers (bytes) and strides (elements) of an aligned binary are multiples of."""


@dataclass(frozen=True)
class Case:
    """The source of a binary.

    Attributes:
        kernel: Name of the function in ``triton_kernels``.
        types: Triton's type of each argument that is not an ``i32``.
        constants: What is compiled in.
        aligned: Arguments that are multiples of ``ALIGNED``.
        warps: Warps of a program.
        stages: Stages of the software pipeline.
    """

    kernel: str
    types: dict[str, str]
    constants: dict[str, Any]
    aligned: tuple[str, ...]
    warps: int = 4
    stages: int = 3

    @property
    def element(self) -> str:
        """The element type of the output: ``fp16``, ``bf16`` or ``fp32``."""
        return self.types["out"].removeprefix("*").removeprefix("tensordesc<").partition("[")[0]


def _matmul(
    element: str, tile: tuple[int, int, int], warps: int, stages: int, activation: str = "none", aligned: bool = True,
    precision: str = "tf32",
) -> Case:  # fmt: skip
    constants = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True), GROUP=8)
    compiled_in = {"ACTIVATION": activation, "PRECISION": precision}
    pointers = ("a", "b", "bias", "out")
    multiples = ("n", "k", "a_stride", "b_stride", "out_stride") if aligned else ()
    return Case(
        "matmul", dict.fromkeys(pointers, "*" + element), {**constants, **compiled_in},
        (*pointers, *multiples), warps, stages,
    )  # fmt: skip


def _matmul_tma(element: str, m: int, n: int, k: int, warps: int, stages: int) -> Case:
    tiles = {"a": (m, k), "b": (n, k), "out": (m, n)}
    types = {name: f"tensordesc<{element}[{rows}, {columns}]>" for name, (rows, columns) in tiles.items()}
    constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8, "PROGRAMS": 132}
    return Case("matmul_tma", {**types, "bias": "*" + element}, constants, ("bias", "n", "k"), warps, stages)


def _attention(causal: bool) -> Case:
    pointers = ("q", "k", "v", "out")
    strides = tuple(f"{name}_{axis}" for name in pointers for axis in ("batch", "head", "row"))
    constants = {"WIDTH": 64, "BLOCK_Q": 128, "BLOCK_K": 64, "CAUSAL": causal}
    return Case("attention", {**dict.fromkeys(pointers, "*fp16"), "scale": "fp32"}, constants, (*pointers, *strides))


def _rows(kernel: str, pointers: str, block: int, *aligned: str, **types: str) -> Case:
    names = tuple(pointers.split())
    return Case(kernel, {**dict.fromkeys(names, "*fp16"), **types}, {"BLOCK": block}, (*names, *aligned))


CASES: dict[str, Case] = {
    "matmul_fp16_128x128x64": _matmul("fp16", (128, 128, 64), 8, 3),
    "matmul_fp16_128x128x64_gelu": _matmul("fp16", (128, 128, 64), 8, 3, "gelu"),
    "matmul_fp16_128x128x64_unaligned": _matmul("fp16", (128, 128, 64), 8, 3, aligned=False),
    "matmul_fp16_128x256x64": _matmul("fp16", (128, 256, 64), 8, 3),
    "matmul_fp16_64x64x64": _matmul("fp16", (64, 64, 64), 4, 4),
    "matmul_fp16_32x64x128": _matmul("fp16", (32, 64, 128), 4, 4),
    "matmul_fp16_32x64x128_gelu": _matmul("fp16", (32, 64, 128), 4, 4, "gelu"),
    "matmul_fp16_16x64x128": _matmul("fp16", (16, 64, 128), 4, 4),
    "matmul_fp16_tma_128x256x64": _matmul_tma("fp16", 128, 256, 64, 8, 3),
    "matmul_bf16_128x128x64": _matmul("bf16", (128, 128, 64), 8, 3),
    "matmul_tf32_128x128x32": _matmul("fp32", (128, 128, 32), 4, 3),
    "matmul_fp32_64x64x32": _matmul("fp32", (64, 64, 32), 4, 3, precision="ieee"),
    "softmax_fp16": _rows("softmax", "x out", 1024, "columns", "x_stride", "out_stride"),
    "add_layer_norm_fp16": _rows(
        "add_layer_norm", "x other scale bias out", 1024, "columns", "x_stride", "other_stride", "out_stride",
        epsilon="fp32",
    ),
    "multiply_add_fp16": _rows("multiply_add", "a b c out", 1024),
    "reduce_sum_fp16": _rows("reduce_sum", "x out", 1024, "columns", "x_stride"),
    "attention_fp16": _attention(causal=False),
    "attention_fp16_causal": _attention(causal=True),
    "gather_fp16": _rows(
        "gather", "table indices out fault", 1024, "columns", "table_stride", "out_stride", indices="*i64", fault="*i32"
    ),
}  # fmt: skip
"""By name, which is the file's too."""
