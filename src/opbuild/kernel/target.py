"""Target: the machine that code is made for, spelled as Halide spells it.

Detected from ``/proc/cpuinfo`` rather than by asking Halide, because a network that is already built starts without
importing it. The operating system's list is also the safer one: it leaves out what the kernel or the hypervisor
disabled.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from opbuild.errors import TargetError

_ARCHITECTURES = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "arm-64", "arm64": "arm-64", "riscv64": "riscv-64"}

_X86_FEATURES: tuple[tuple[str, frozenset[str]], ...] = (
    ("sse41", frozenset({"sse4_1"})),
    ("avx", frozenset({"avx"})),
    ("f16c", frozenset({"f16c"})),
    ("fma", frozenset({"fma"})),
    ("avx2", frozenset({"avx", "f16c", "rdrand", "avx2"})),
    ("avx512", frozenset({"avx2", "avx512f", "avx512cd"})),
    ("avx512_skylake", frozenset({"avx512f", "avx512cd", "avx512vl", "avx512bw", "avx512dq"})),
    ("avx512_cannonlake", frozenset({"avx512f", "avx512cd", "avx512vl", "avx512bw", "avx512dq", "avx512ifma"})),
    ("avxvnni", frozenset({"avx2", "avx_vnni"})),
)
"""Halide's feature and the flags of ``/proc/cpuinfo`` that it needs, all of them."""

_X86_BF16 = frozenset({"avx512ifma", "avx512vl", "avx512bw", "avx512dq", "avx512_bf16", "avx512_vnni"})
"""What Sapphire Rapids and Zen 4 share beyond Cannon Lake."""

_ARM_FEATURES: tuple[tuple[str, frozenset[str]], ...] = (
    ("arm_dot_prod", frozenset({"asimddp"})),
    ("arm_fp16", frozenset({"fphp", "asimdhp"})),
)


@dataclass(frozen=True)
class Target:
    """What code is made for.

    Attributes:
        triple: Architecture, bits and operating system, e.g. ``x86-64-linux``.
        features: Instruction-set extensions that code may use, Halide's names, sorted.
    """

    triple: str
    features: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "-".join((self.triple, *self.features))


@lru_cache(maxsize=1)
def host_target() -> Target:
    """Return the target of this machine.

    Raises:
        TargetError: If opbuild makes no code for this architecture or operating system.
    """
    machine = platform.machine().lower()
    system = platform.system().lower()
    if machine not in _ARCHITECTURES or system != "linux":
        raise TargetError(
            f"no code can be made for {machine} under {system}", "opbuild runs on Linux: x86-64, Arm, RISC-V"
        )
    architecture = _ARCHITECTURES[machine]
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""  # a sandbox without /proc: the base instruction set always runs
    return Target(f"{architecture}-linux", detect_features(architecture, text))


def detect_features(architecture: str, cpuinfo: str) -> tuple[str, ...]:
    """Return Halide's features for the text of a ``/proc/cpuinfo``, sorted; cores of several kinds give what all have.

    Args:
        architecture: ``x86-64``, ``arm-64`` or ``riscv-64``.
        cpuinfo: The file's text.
    """
    lists = re.findall(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    flags = frozenset.intersection(*(frozenset(line.split()) for line in lists)) if lists else frozenset[str]()
    if architecture == "arm-64":
        return _select(_ARM_FEATURES, flags)
    if architecture != "x86-64":
        return ()
    features = set(_select(_X86_FEATURES, flags))
    if "avx512_cannonlake" in features and flags >= _X86_BF16:
        amd = "AuthenticAMD" in cpuinfo
        if "avxvnni" not in features:
            features.add("avx512_zen4")
        elif amd:
            features.update(("avx512_zen4", "avx512_zen5"))
        else:
            features.add("avx512_sapphirerapids")
    return tuple(sorted(features))


def _select(table: Iterable[tuple[str, frozenset[str]]], flags: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(feature for feature, needed in table if flags >= needed))


def parse_target(text: str) -> Target:
    """Return the target that ``text`` spells, e.g. ``x86-64-linux-avx-avx2-fma-f16c-sse41`` or ``host``.

    Raises:
        TargetError: If it is not of the form architecture-bits-system-features.
    """
    if text == "host":
        return host_target()
    parts = text.split("-")
    triple = "-".join(parts[:3])
    if len(parts) < 3 or triple.rsplit("-", 1)[0] not in _ARCHITECTURES.values() or parts[2] != "linux":
        raise TargetError(
            f"target {text!r} is unknown",
            "write architecture, bits, system and features, e.g. x86-64-linux-avx-avx2-fma",
        )
    bad = [feature for feature in parts[3:] if not re.fullmatch(r"[a-z0-9_]+", feature)]
    if bad:
        raise TargetError(f"target {text!r} has the malformed feature {bad[0]!r}", "features are lower-case words")
    return Target(triple, tuple(sorted(set(parts[3:]))))


def runs_here(target: Target) -> str | None:
    """Return why code for ``target`` can not run on this machine, or None if it can.

    Code that uses an instruction that this machine lacks dies with SIGILL, so this is asked before an object is loaded.
    """
    host = host_target()
    if target.triple != host.triple:
        return f"it is for {target.triple}, this machine is {host.triple}"
    missing = [feature for feature in target.features if feature not in host.features and feature not in _NEUTRAL]
    return f"this machine lacks {', '.join(missing)}" if missing else None


def needed_of_machine(target: Target) -> tuple[str, ...]:
    """Return what code for ``target`` needs: the machine as ``uname -m`` calls it, then words of ``/proc/cpuinfo``."""
    architecture = target.triple.rpartition("-")[0]
    machine = next(name for name, known in _ARCHITECTURES.items() if known == architecture)
    table = {**dict(_X86_FEATURES), **dict(_ARM_FEATURES), **dict.fromkeys(_BEYOND_CANNON_LAKE, _X86_BF16)}
    flags = frozenset[str]().union(*(table.get(feature, frozenset()) for feature in target.features))
    return (machine, *sorted(flags))


_BEYOND_CANNON_LAKE = ("avx512_zen4", "avx512_zen5", "avx512_sapphirerapids")
_NEUTRAL = frozenset({"no_runtime", "no_asserts", "no_bounds_query", "large_buffers", "strict_float"})
"""Features of a target that ask nothing of the machine."""
