"""Target: what code is made for."""

from __future__ import annotations

from opbuild.platform.records import dataclass

CPU = "cpu"
"""The class of devices that every machine has: the host's own processor."""


@dataclass(frozen=True)
class Target:
    """An architecture of a class of devices; written ``cpu:x86-64-v4``, ``cuda:sm_90a``.

    Attributes:
        device: The class of devices.
        arch: The architecture.
    """

    device: str
    arch: str

    @property
    def name(self) -> str:
        """What keys hold: of CPUs, which other devices came after, the architecture alone."""
        return self.arch if self.device == CPU else f"{self.device}:{self.arch}"

    def __str__(self) -> str:
        return self.name
