"""Linking: the objects of one network become one shared library.

Each network's library holds its own copy of what its kernels call and binds it to itself: the number of threads is
exact for each network, and no library takes another's symbols. What other libraries define is bound when it is opened,
so that a missing symbol is an error there and not in the middle of a run. Mathematical functions of libm come from the
process, as ``library`` makes them visible.

What nothing reaches is left out: beside each kernel Halide writes its description, which has most of the addresses
that the loader would have to complete.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from functools import lru_cache

from opbuild.errors import LinkError
from opbuild.kernel.artifact import read_symbols
from opbuild.platform.paths import Path
from opbuild.runtime.devices.cpu.objects import ObjectError, read_object
from opbuild.runtime.devices.cpu.parts import reached
from opbuild.runtime.devices.cpu.relocations import UnreachableError
from opbuild.runtime.devices.cpu.shared_object import SharedObject


def link(objects: Sequence[bytes]) -> bytes:
    """Link relocatable objects into one shared library; equal objects in equal order give equal bytes.

    Raises:
        LinkError: If one is no object, or is for another machine than the others, or if a symbol is defined twice.
    """
    try:
        return SharedObject(reached([read_object(data) for data in objects])).data()
    except (ObjectError, UnreachableError, struct.error) as error:  # the last: an address of more than 64 bits
        hint = "this is an error in opbuild; please report it"
        raise LinkError(f"the network's objects cannot be linked: {error}", hint) from error


_PARTS = ("tasks", "memory", "call", "indices")
_ALWAYS = ("call", "indices")
"""Parts that no kernel calls."""
_SUPPORT = Path(__file__).parent.parent.parent.parent / "native" / "support"
_SUPPORT_FOR = {"x86-64-linux": "x86_64", "arm-64-linux": "aarch64"}


@lru_cache(maxsize=4)
def support_parts(triple: str) -> dict[str, bytes]:
    """Return the relocatable objects by the names of their sources.

    Args:
        triple: The target's architecture and system, e.g. ``x86-64-linux``.
    """
    machine = _SUPPORT_FOR.get(triple)
    files = {part: _SUPPORT / f"{part}_{machine}.o" for part in _PARTS}
    return {part: path.read_bytes() for part, path in files.items() if path.exists()}


def provided_symbols(triple: str) -> frozenset[str]:
    """Return the symbols that the objects define, all together."""
    return frozenset(symbol for part in support_parts(triple).values() for symbol in read_symbols(part).defined)


def support_objects(triple: str, undefined: Collection[str]) -> list[bytes]:
    """Return the objects that define some of these symbols, call kernels, and refuse indices."""
    parts = support_parts(triple).items()
    return [p for name, p in parts if name in _ALWAYS or not set(read_symbols(p).defined).isdisjoint(undefined)]
