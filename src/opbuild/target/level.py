"""Target: what code is made for. Level: the target of a CPU, an instruction set; many machines share one.

Levels of one architecture are ordered: code for a level runs on every machine of that level or of a higher one. Those
of x86-64 up to v4 are the micro-architecture levels of its psABI (https://gitlab.com/x86-psABIs/x86-64-ABI).
"""

from __future__ import annotations

from typing import TypeAlias

from opbuild.platform.records import dataclass, field

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


_V2 = frozenset({"pni", "ssse3", "sse4_1", "sse4_2", "popcnt", "cx16"})
_V3 = _V2 | {"avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe"}
_V4 = _V3 | {"avx512f", "avx512cd", "avx512vl", "avx512bw", "avx512dq"}
_BF16 = _V4 | {
    "avx512ifma", "avx512vbmi", "avx512_vbmi2", "avx512_bitalg", "avx512_vpopcntdq", "gfni", "avx512_vnni",
    "avx512_bf16",
}  # fmt: skip


@dataclass(frozen=True)
class Level(Target):
    """An instruction set.

    Attributes:
        triple: Architecture, bits and operating system, e.g. ``x86-64-linux``.
        flags: What ``/proc/cpuinfo`` lists on every machine that has it.
    """

    triple: str = ""
    flags: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def level(self) -> Level:
        """The level itself; see ``DeviceTarget``."""
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The targets of the operators of networks for it, as keys name them."""
        return (self.name,)

    def runs_on(self, machine: Level) -> bool:
        """Return whether code for this level runs on every machine of another."""
        return self.triple == machine.triple and self.flags <= machine.flags

    def lower(self) -> tuple[Level, ...]:
        """Return the lower levels of the architecture, the highest first."""
        return tuple(each for each in reversed(LEVELS) if each.runs_on(self) and each.name != self.name)

    def higher(self) -> Level | None:
        """Return the next higher level of the architecture; None if this is the highest."""
        return next((each for each in LEVELS if self.runs_on(each) and each.name != self.name), None)


@dataclass(frozen=True)
class DeviceTarget:
    """A device, and the CPU beside it that computes what the device has no kernels for.

    Attributes:
        level: Of the CPU.
        device: Of the device.
    """

    level: Level
    device: Target

    @property
    def name(self) -> str:
        """Both, as reports and bundles name them."""
        return f"{self.level} with {self.device}"

    @property
    def names(self) -> tuple[str, ...]:
        """The targets of the operators of networks for it, as keys name them."""
        return self.level.name, self.device.name

    def __str__(self) -> str:
        return self.name


BuildTarget: TypeAlias = "Level | DeviceTarget"
"""What a network is built for."""

LEVELS: tuple[Level, ...] = (
    Level(CPU, "x86-64", "x86-64-linux"),
    Level(CPU, "x86-64-v2", "x86-64-linux", _V2),
    Level(CPU, "x86-64-v3", "x86-64-linux", _V3),
    Level(CPU, "x86-64-v4", "x86-64-linux", _V4),
    Level(CPU, "x86-64-v4-bf16", "x86-64-linux", _BF16),
    Level(CPU, "armv8-a", "arm-64-linux"),
    Level(CPU, "armv8.2-a-dotprod", "arm-64-linux", frozenset({"asimddp", "asimdhp", "fphp"})),
    Level(CPU, "rv64gc", "riscv-64-linux"),
)
"""All levels; those of one architecture from the lowest to the highest."""

BY_NAME = {level.name: level for level in LEVELS}
"""All levels by the names that keys and files hold."""


def target_named(name: str) -> Target:
    """Return the target that has a name in keys and files: a level, or ``device:architecture``.

    Raises:
        LookupError: If it is neither.
    """
    device, colon, arch = name.partition(":")
    return Target(device, arch) if colon else BY_NAME[name]


def best_level(triple: str, flags: frozenset[str]) -> Level:
    """Return the highest level of an architecture whose flags a machine has."""
    return next(level for level in reversed(LEVELS) if level.triple == triple and level.flags <= flags)
