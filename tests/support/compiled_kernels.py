"""The code of kernels for NVIDIA's GPUs, compiled as it is shipped: what it uses, by the tools in Triton's wheel."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import triton

from opbuild.backend.triton.compiler import TritonCompiler
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.cuda import CLASS

MOST_SHARED, MOST_REGISTERS = 232448, 255
"""Bytes of shared memory that a program of an H100 may have, and registers of a thread."""

_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
_INSTRUCTIONS = {
    "spills": r"\bSTL\b",
    "groups": r"\b[HIDQ]?GMMA\b",
    "products": r"\b[HD]MMA\b",
    "copies": r"\bLDGSTS\b",
    "wide_copies": r"\bLDGSTS\.\S*\b128\b",
    "loads": r"\bLDG\b",
    "wide_loads": r"\bLDG\.\S*\b128\b",
    "stores": r"\bSTG\b",
    "wide_stores": r"\bSTG\.\S*\b128\b",
}


class CodeUsage(NamedTuple):
    """The resources and instructions of a kernel's code.

    Attributes:
        registers: Registers of a thread.
        shared: Bytes of shared memory.
        spills: Stores of registers to memory.
        groups: Products by the tensor cores of a group of warps.
        products: Products by those of a warp.
        copies: Asynchronous copies to shared memory.
        wide_copies: Those of 16 bytes.
        loads: Reads of memory.
        wide_loads: Those of 16 bytes.
        stores: Writes.
        wide_stores: Those of 16 bytes.
    """

    registers: int
    shared: int
    spills: int
    groups: int
    products: int
    copies: int
    wide_copies: int
    loads: int
    wide_loads: int
    stores: int
    wide_stores: int


def usage(desc: OpDesc) -> CodeUsage:
    """Return the usage of a device's descriptor."""
    made = TritonCompiler.define(desc, CLASS.target()).compile("kernel")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(made.data)
        listed, code = (
            subprocess.run([_TOOLS / tool, option, file.name], capture_output=True, text=True, check=True).stdout
            for tool, option in (("cuobjdump", "-res-usage"), ("nvdisasm", "-c"))
        )
    counts = {name: len(re.findall(pattern, code)) for name, pattern in _INSTRUCTIONS.items()}
    return CodeUsage(int(re.findall(r"REG:(\d+)", listed)[0]), made.launch["shared"], **counts)
