"""Artifact: the result of compiling an operator, and the kinds that there are. Each kind checks its own.

Objects, which CPUs' code is, are known here; a class of devices brings the kind of its own (``target.devices``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from opbuild.kernel.elf import read_symbols
from opbuild.kernel.symbols import GlobalSymbols, NotAnArtifactError, UnknownKindError
from opbuild.platform.records import dataclass, field

OBJECT = "object"
"""The kind of CPUs: relocatable ELF objects."""


@dataclass(frozen=True, eq=False)
class Artifact:
    """One compiled operator.

    Attributes:
        data: Its bytes.
        symbol: The kernel's symbol; empty if there is no kernel in it (the compiler's runtime library), or if ``data``
            is to be asked.
        kind: What the bytes are.
        launch: How the kernel is launched, as JSON values that its device knows; empty where a call is all.
    """

    data: bytes
    symbol: str = ""
    kind: str = OBJECT
    launch: Mapping[str, Any] = field(default_factory=dict)


class ArtifactKind(Protocol):
    """A kind of artifacts.

    Attributes:
        magic: How MindSpore's records would call it.
    """

    magic: str

    def symbols(self, data: bytes, launch: Mapping[str, Any], /) -> GlobalSymbols:
        """Return the symbols that an artifact defines and those that it expects from others.

        Raises:
            NotAnArtifactError: If it is none, or cannot be launched so; the message says what is wrong.
        """


class _Objects:
    """Relocatable ELF objects."""

    magic = "RT_DEV_BINARY_MAGIC_ELF"

    @staticmethod
    def symbols(data: bytes, launch: Mapping[str, Any], /) -> GlobalSymbols:
        """Return its global symbols; it is called, and not launched."""
        if launch:
            raise NotAnArtifactError("it says how to be launched")
        return read_symbols(data)


_OBJECTS = _Objects()


def kind_of(name: str) -> ArtifactKind:
    """Return a kind of artifacts by its name.

    Raises:
        UnknownKindError: If no class of devices here has it.
    """
    if name == OBJECT:
        return _OBJECTS
    from opbuild.target.devices import load_kind

    kind: ArtifactKind | None = load_kind(name)
    if kind is None:
        raise UnknownKindError(f"it is of the kind {name!r:.80}, which no device here runs")
    return kind
