"""The symbols of an artifact, whatever its kind."""

from __future__ import annotations

from opbuild.platform.records import dataclass


class NotAnArtifactError(ValueError):
    """The bytes are not what they are taken for."""


class UnknownKindError(NotAnArtifactError):
    """Nobody here can say what the bytes are."""


@dataclass(frozen=True)
class GlobalSymbols:
    """The global symbols of an artifact, each sorted: those that it defines, and those that it expects from others."""

    defined: tuple[str, ...]
    undefined: tuple[str, ...] = ()
