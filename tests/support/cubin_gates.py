"""The code of kernels for an H100, as the tools of Triton's wheel read it: no GPU is needed."""

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

MOST_SHARED = 232448
"""Bytes of shared memory that a program of an H100 may ask for."""

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
SPILLS, PRODUCTS, VECTORS = r"\bSTL\b", r"\bHGMMA\b", r"\b(?:LDG|STG|LDGSTS)\.E(?:\.\w+)*?\.128\b"


class Code(NamedTuple):
    """The code of a kernel.

    Attributes:
        registers: Of a thread.
        spills: Stores of registers to memory.
        shared: Bytes of shared memory.
        products: Products of a group of four warps by tensor cores.
        vectors: Reads and writes of 16 bytes.
        size: Bytes of the binary.
    """

    registers: int
    spills: int
    shared: int
    products: int
    vectors: int
    size: int


def code_of(desc: OpDesc) -> Code:
    """Return the code of the device's kernel for a CPU's descriptor."""
    served = CLASS.kernel(desc)
    assert served is not None, "there is no kernel"
    artifact = TritonCompiler.define(served, CLASS.target()).compile("kernel")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(artifact.data)
        usage, text = (
            subprocess.run([TOOLS / tool, option, file.name], capture_output=True, text=True, check=True).stdout
            for tool, option in (("cuobjdump", "-res-usage"), ("nvdisasm", "-c"))
        )
    registers = int(re.findall(r"REG:(\d+)", usage)[0])
    spills, products, vectors = (len(re.findall(pattern, text)) for pattern in (SPILLS, PRODUCTS, VECTORS))
    return Code(registers, spills, int(artifact.launch["shared"]), products, vectors, len(artifact.data))
