"""Keeping runtimes that have no switch for it from instructions beyond a level.

What a runtime uses it asks ``cpuid`` for, itself. So its package is copied, as links but for its libraries, in which
``ud2`` takes the place of each ``cpuid``; a library that is loaded before all others catches the signal of these and
answers without what is beyond the level. Neither a kernel that faults on ``cpuid`` nor a way for it is needed, which
few virtual machines have. It takes a C compiler and ``objdump``, which tells instructions from other bytes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

from opbuild.tuning.bench.runtimes import RUNTIMES

SOURCE = Path(__file__).with_suffix(".c")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "opbuild-limited-cpu"
CPUID, UD2 = b"\x0f\xa2", b"\x0f\x0b"

BEYOND_AVX512 = {"ebx": 0, "ecx": 1 << 1 | 1 << 6 | 1 << 11 | 1 << 12 | 1 << 14, "edx": 0x1C0010C}
"""Bits of leaf 7 that are beyond ``x86-64-v4``: vectors of bytes, bits and pairs, and matrices (AMX)."""

AVX512 = {"ebx": 0b11 << 16 | 1 << 21 | 0b11111 << 26, "ecx": 0, "edx": 0}
"""Bits of leaf 7 for what is in ``x86-64-v4`` and not in ``x86-64-v3``; 29 is SHA, which neither has."""

HIDDEN = {
    "x86-64-v3": {name: bits | AVX512[name] for name, bits in BEYOND_AVX512.items()},
    "x86-64-v4": BEYOND_AVX512,
}
"""By level, the bits of leaf 7 that are not shown."""

PACKAGES = ("onnxruntime", "openvino", "mnn", "ncnn")
"""Runtimes whose libraries are changed; what torch brings takes minutes to read, and it has switches."""


def lacking() -> str:
    """Return the tools that are lacking here to limit anything; empty if none is."""
    tools = [name for name in ("cc", "objdump") if shutil.which(name) is None]
    return f"{' and '.join(tools)} not found" if tools else ""


@cache
def environment(runtime: str, level: str) -> Mapping[str, str]:
    """Return the variables of a process in which a runtime finds no instructions beyond a level.

    Args:
        runtime: Its name in ``RUNTIMES``.
        level: One of ``HIDDEN``.

    Returns:
        The variables; none if it is not one of ``PACKAGES``, is not installed, or tools are lacking.
    """
    if runtime not in PACKAGES or not RUNTIMES[runtime].is_installed or lacking():
        return {}
    found = distribution(packages_distributions()[RUNTIMES[runtime].package][0])
    folder = CACHE / f"{found.name}-{found.version}"
    if not folder.is_dir():
        part = folder.with_name(f"{folder.name}.{os.getpid()}")
        for file in found.files or ():
            if ".." not in file.parts:
                _place(Path(str(file.locate())), part / file)
        part.rename(folder)
    before = os.environ.get("PYTHONPATH")
    return {"LD_PRELOAD": str(_handler(level)), "PYTHONPATH": f"{folder}:{before}" if before else str(folder)}


def _place(source: Path, place: Path) -> None:
    """Link a file, or write a library that asks ``cpuid`` without these instructions."""
    place.parent.mkdir(parents=True, exist_ok=True)
    content = bytearray(source.read_bytes()) if ".so" in source.name else b""
    offsets = list(_instructions(source)) if CPUID in content else []
    if not offsets:
        place.symlink_to(source)
        return
    for offset in offsets:
        content[offset : offset + len(CPUID)] = UD2
    place.write_bytes(content)
    place.chmod(source.stat().st_mode)


def _instructions(library: Path) -> Iterator[int]:
    """Yield where in a file each ``cpuid`` is."""
    command = ["objdump", "--disassemble", "--file-offsets", "--no-show-raw-insn", str(library)]
    headers = subprocess.run(["objdump", "--section-headers", str(library)], capture_output=True, text=True, check=True)
    sections = {name: int(offset, 16) - int(start, 16) for name, start, offset in
                re.findall(r"^ *\d+ (\S+) +\S+ +(\S+) +\S+ +(\S+)", headers.stdout, re.MULTILINE)}  # fmt: skip
    shift = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if line.startswith("Disassembly of section"):
                shift = sections[line.split()[-1].rstrip(":")]
            elif line.rstrip().endswith("\tcpuid"):
                yield int(line.split(":")[0], 16) + shift


def _handler(level: str) -> Path:
    """Return the library that answers for a level; it is compiled if it is not there."""
    library = CACHE / f"{level}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        bits = [f"-DHIDDEN_{name.upper()}={value:#x}" for name, value in HIDDEN[level].items()]
        part = library.with_suffix(f".{os.getpid()}")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", *bits, "-o", part, SOURCE], check=True)
        part.rename(library)
    return library
