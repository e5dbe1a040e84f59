"""Element types as Triton names them."""

from __future__ import annotations

from opbuild.errors import CompileError

POINTED = {
    "bool": "u8", "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip
"""The types of operands as signatures have what a pointer points to: a bool is a byte of 0 or 1."""


def language_type(dtype: str) -> str:
    """Return a type as sources name it; a truth value has one bit there.

    Raises:
        CompileError: If it is none.
    """
    if dtype not in POINTED:
        raise CompileError(f"there is no type {dtype!r:.40} in Triton")
    return "tl.int1" if dtype == "bool" else f"tl.{dtype}"
