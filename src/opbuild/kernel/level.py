"""Level: the instruction set that code is made for; many machines share one.

Levels of one architecture are ordered: code for a level runs on every machine of that level or of a higher one. Those
of x86-64 up to v4 are the micro-architecture levels of its psABI (https://gitlab.com/x86-psABIs/x86-64-ABI).
"""

from __future__ import annotations

from opbuild.platform.records import dataclass, field

_V2 = frozenset({"pni", "ssse3", "sse4_1", "sse4_2", "popcnt", "cx16"})
_V3 = _V2 | {"avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe"}
_V4 = _V3 | {"avx512f", "avx512cd", "avx512vl", "avx512bw", "avx512dq"}
_BF16 = _V4 | {
    "avx512ifma", "avx512vbmi", "avx512_vbmi2", "avx512_bitalg", "avx512_vpopcntdq", "gfni", "avx512_vnni",
    "avx512_bf16",
}  # fmt: skip
_HALIDE_V3 = ("avx", "avx2", "f16c", "fma", "sse41")
_HALIDE_V4 = (*_HALIDE_V3, "avx512", "avx512_skylake")


@dataclass(frozen=True)
class Level:
    """An instruction set.

    Attributes:
        name: Its name; what keys hold.
        triple: Architecture, bits and operating system as Halide spells them, e.g. ``x86-64-linux``.
        features: Halide's features, all that code for the level may use, sorted.
        flags: What ``/proc/cpuinfo`` lists on every machine that has it.
        dots: Halide's further features for kernels that add up products of bytes or of bfloat16, without which Halide
            does not know the level's instructions for that.
    """

    name: str
    triple: str
    features: tuple[str, ...] = field(default=(), repr=False)
    flags: frozenset[str] = field(default=frozenset(), repr=False)
    dots: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return self.name

    def runs_on(self, machine: Level) -> bool:
        """Return whether code for this level runs on every machine of another."""
        return self.triple == machine.triple and self.flags <= machine.flags

    def lower(self) -> tuple[Level, ...]:
        """Return the lower levels of the architecture, the highest first."""
        return tuple(each for each in reversed(LEVELS) if each.runs_on(self) and each.name != self.name)

    def higher(self) -> Level | None:
        """Return the next higher level of the architecture; None if this is the highest."""
        return next((each for each in LEVELS if self.runs_on(each) and each.name != self.name), None)


LEVELS: tuple[Level, ...] = (
    Level("x86-64", "x86-64-linux"),
    Level("x86-64-v2", "x86-64-linux", ("sse41",), _V2),
    Level("x86-64-v3", "x86-64-linux", tuple(sorted(_HALIDE_V3)), _V3),
    Level("x86-64-v4", "x86-64-linux", tuple(sorted(_HALIDE_V4)), _V4),
    Level(
        "x86-64-v4-bf16",
        "x86-64-linux",
        tuple(sorted((*_HALIDE_V4, "avx512_cannonlake"))),
        _BF16,
        ("avx512_zen4",),
    ),
    Level("armv8-a", "arm-64-linux"),
    Level("armv8.2-a-dotprod", "arm-64-linux", ("arm_dot_prod", "arm_fp16"), frozenset({"asimddp", "asimdhp", "fphp"})),
    Level("rv64gc", "riscv-64-linux"),
)
"""All levels; those of one architecture from the lowest to the highest."""

BY_NAME = {level.name: level for level in LEVELS}
"""All levels by the names that keys and files hold."""


def best_level(triple: str, flags: frozenset[str]) -> Level:
    """Return the highest level of an architecture whose flags a machine has."""
    return next(level for level in reversed(LEVELS) if level.triple == triple and level.flags <= flags)
