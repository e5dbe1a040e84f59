"""Levels as Halide spells them."""

from __future__ import annotations

from collections.abc import Mapping

from opbuild.platform.records import dataclass
from opbuild.target.level import Level

_V3 = ("avx", "avx2", "f16c", "fma", "sse41")

_FEATURES: Mapping[str, tuple[str, ...]] = {
    "x86-64-v2": ("sse41",),
    "x86-64-v3": _V3,
    "x86-64-v4": tuple(sorted((*_V3, "avx512", "avx512_skylake"))),
    "x86-64-v4-bf16": tuple(sorted((*_V3, "avx512", "avx512_skylake", "avx512_cannonlake"))),
    "armv8.2-a-dotprod": ("arm_dot_prod", "arm_fp16"),
}

_DOTS: Mapping[str, tuple[str, ...]] = {"x86-64-v4-bf16": ("avx512_zen4",)}


@dataclass(frozen=True)
class HalideLevel(Level):
    """A level, and what Halide calls what code for it may use.

    Attributes:
        features: Halide's features, sorted.
        dots: Its further features for kernels that add up products of bytes or of bfloat16, without which Halide does
            not know the level's instructions for that.
    """

    features: tuple[str, ...] = ()
    dots: tuple[str, ...] = ()


def spelled(level: Level) -> HalideLevel:
    """Return a level as Halide knows it; one that says so itself as it is."""
    if isinstance(level, HalideLevel):
        return level
    name = level.name
    own = level.device, level.arch, level.triple, level.flags
    return HalideLevel(*own, _FEATURES.get(name, ()), _DOTS.get(name, ()))
