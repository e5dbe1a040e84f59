"""What networks are linked with besides their kernels, as objects: threads, memory, and calls.

Kernels call parallel loops (``threads.c``) and memory (``memory.c``). The compiler has a runtime library of its own,
ten times as large and as long to compile as six operators; it is linked beside these only where an object calls more
of it, to be debugged for example. Kernels that run in one thread are called through ``call.c``.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from importlib import resources

from opbuild.kernel.elf import read_symbols

_PARTS = ("threads", "memory", "call")
_MACHINES = {"x86-64-linux": "x86_64", "arm-64-linux": "aarch64"}


@lru_cache(maxsize=4)
def support_parts(triple: str) -> dict[str, bytes]:
    """Return the relocatable objects by the names of their sources; none for machines that have only the compiler's.

    Args:
        triple: The target's architecture and system, e.g. ``x86-64-linux``.
    """
    machine = _MACHINES.get(triple)
    folder = resources.files("opbuild").joinpath("native", "support")
    return {part: folder.joinpath(f"{part}_{machine}.o").read_bytes() for part in _PARTS if machine is not None}


def provided_symbols(triple: str) -> frozenset[str]:
    """Return what the objects define, all together."""
    return frozenset(symbol for part in support_parts(triple).values() for symbol in read_symbols(part).defined)


def support_objects(triple: str, undefined: Collection[str]) -> list[bytes]:
    """Return the objects that define some of these symbols, and the one that calls kernels."""
    parts = support_parts(triple).items()
    return [part for name, part in parts if name == "call" or not set(read_symbols(part).defined).isdisjoint(undefined)]
