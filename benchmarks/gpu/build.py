"""Compile the binaries that are carried, with Triton alone: no GPU, driver, CUDA toolkit or torch is needed.

``python build.py`` writes ``cubins/``: one file a case, and ``index.json`` with what a launch needs. With ``--check``
it compiles and compares with what is there, byte by byte. The bytes follow from the sources and Triton's release.
"""

from __future__ import annotations

import argparse
import os
import sys

PINNED = "3.6.0"

for name in [name for name in os.environ if name.startswith("TRITON_") or name == "PTXAS_OPTIONS"]:
    del os.environ[name]  # they change code
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # else the sources' path is in the bytes
os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # the default of later releases differs
os.environ["TRITON_ALWAYS_COMPILE"] = "1"

import hashlib  # noqa: E402
import json  # noqa: E402
import re  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import triton  # noqa: E402
import triton_kernels  # noqa: E402
from cases import ALIGNED, CASES, Case  # noqa: E402
from cubin import parameter_places  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

TARGET = GPUTarget("cuda", 90, 32)
FOLDER = Path(__file__).parent / "cubins"
SCRATCH = ("global_scratch", "profile_scratch")
"""Pointers that Triton adds behind a kernel's own arguments."""


def compiled(name: str, case: Case) -> tuple[bytes, dict[str, Any]]:
    """Return a case's binary and its record for the index."""
    source = getattr(triton_kernels, case.kernel)
    function = triton.jit(source.fn, repr=lambda _: name)
    types = {argument: case.types.get(argument, "i32") for argument in source.arg_names}
    signature = {argument: "constexpr" if argument in case.constants else kind for argument, kind in types.items()}
    attributes = {(source.arg_names.index(argument),): [["tt.divisibility", ALIGNED]] for argument in case.aligned}
    result = triton.compile(
        ASTSource(fn=function, signature=signature, constexprs=case.constants, attrs=attributes),
        target=TARGET,
        options={"num_warps": case.warps, "num_stages": case.stages},
    )
    if result.metadata.global_scratch_size or result.metadata.profile_scratch_size:
        raise SystemExit(f"{name}: needs scratch memory, which the launcher does not give")
    maps = [dict(meta) for meta in result.metadata.tensordesc_meta or []]
    binary = result.asm["cubin"]
    return binary, {
        "symbol": result.metadata.name,
        "warps": result.metadata.num_warps,
        "shared": result.metadata.shared,
        "parameters": _parameters(binary, signature, maps),
        "blake2b": hashlib.blake2b(binary, digest_size=16).hexdigest(),
        **_resources(binary),
    }


def _parameters(binary: bytes, signature: dict[str, str], maps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a kernel's parameters in order, with the places that the binary itself states."""
    named: list[dict[str, Any]] = []
    for argument, kind in signature.items():
        if kind.startswith("tensordesc"):
            named += _expanded(argument, maps.pop(0))
        elif kind != "constexpr":
            named.append({"name": argument, "type": "pointer" if kind.startswith("*") else kind})
    named += [{"name": scratch, "type": "pointer"} for scratch in SCRATCH]
    places = parameter_places(binary)
    return [{**parameter, "offset": at, "size": size} for parameter, (at, size) in zip(named, places, strict=True)]


def _expanded(argument: str, meta: dict[str, Any]) -> list[dict[str, Any]]:
    rank = len(meta["block_size"])
    record = {"block": list(meta["block_size"]), "swizzle": meta["swizzle"], "element": meta["elem_type"]}
    return [
        {"name": argument, "type": "tensormap", **record},
        *({"name": f"{argument}.shape.{axis}", "type": "i32"} for axis in range(rank)),
        *({"name": f"{argument}.stride.{axis}", "type": "i64"} for axis in range(rank)),
    ]


def _resources(binary: bytes) -> dict[str, int]:
    """Return the registers of a thread, the local stores that are spills, and products by tensor cores."""
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(binary)
        usage = subprocess.run(
            [tools / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True, check=True
        )
        code = subprocess.run([tools / "nvdisasm", "-c", file.name], capture_output=True, text=True, check=True)
    registers = re.findall(r"REG:(\d+)", usage.stdout)
    return {
        "registers": int(registers[0]),
        "spills": len(re.findall(r"\bSTL\b", code.stdout)),
        "tensor_core_products": len(re.findall(r"\b[HIDQ]?GMMA\b|\bHMMA\b", code.stdout)),
    }


def main() -> int:
    """Build, write or compare, and print the table; return 1 if a binary differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    options = parser.parse_args()
    if triton.__version__ != PINNED:
        print(f"The binaries are made by Triton {PINNED}; {triton.__version__} is installed.", file=sys.stderr)
        return 2
    index, different = {}, []
    for name, case in CASES.items():
        binary, index[name] = compiled(name, case)
        path = FOLDER / f"{name}.cubin"
        if options.check and (not path.exists() or path.read_bytes() != binary):
            different.append(name)
        elif not options.check:
            FOLDER.mkdir(exist_ok=True)
            path.write_bytes(binary)
        row = index[name]
        print(f"{name:34s} {len(binary):6d} bytes {row['registers']:4d} registers {row['spills']:4d} spills "
              f"{row['shared']:7d} shared {row['tensor_core_products']:4d} products", flush=True)  # fmt: skip
    text = json.dumps({"triton": PINNED, "target": "sm_90a", "cubins": index}, indent=1) + "\n"
    if options.check:
        print(f"{len(CASES) - len(different)} of {len(CASES)} binaries have the same bytes", *different)
        return int(bool(different) or (FOLDER / "index.json").read_text() != text)
    (FOLDER / "index.json").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
