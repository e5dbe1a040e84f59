"""What kernels call, as objects to link: parallel loops and threads (``threads.c``), and memory (``memory.c``).

The compiler has a runtime library of its own, ten times as large as all of this and as long to compile as six
operators. It is linked beside these only where an object calls more of it, to be debugged for example.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from importlib import resources

from opbuild.kernel.elf import read_symbols

_PARTS = ("threads", "memory")
_MACHINES = {"x86-64-linux": "x86_64", "arm-64-linux": "aarch64"}


@lru_cache(maxsize=4)
def support_parts(triple: str) -> dict[str, bytes]:
    """Return the relocatable objects by the names of their sources; none for machines that have only the compiler's.

    Args:
        triple: The target's architecture and system, e.g. ``x86-64-linux``.
    """
    machine = _MACHINES.get(triple)
    folder = resources.files("opbuild").joinpath("runtime")
    return {part: folder.joinpath(f"{part}_{machine}.o").read_bytes() for part in _PARTS if machine is not None}


def provided_symbols(triple: str) -> frozenset[str]:
    """Return what the objects define, all together."""
    return frozenset(symbol for part in support_parts(triple).values() for symbol in read_symbols(part).defined)


def support_objects(triple: str, undefined: Collection[str]) -> list[bytes]:
    """Return the objects that define some of these symbols."""
    parts = support_parts(triple).values()
    return [part for part in parts if not set(read_symbols(part).defined).isdisjoint(undefined)]
