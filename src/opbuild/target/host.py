"""This machine: its level, whether code for a level runs on it, and its facts that decide when a kernel is called.

Users name a level, or ``host``, or, as before there were levels, Halide's features (``parse_level``).

The level is read from ``/proc/cpuinfo`` rather than by asking Halide, because a network that is already built starts
without importing it. The operating system's list is also the safer one: it leaves out what the kernel or the hypervisor
disabled.
"""

from __future__ import annotations

import os
import platform
import re
from functools import lru_cache

from opbuild.config import available_cores
from opbuild.errors import OptionError, TargetError
from opbuild.platform.paths import Path
from opbuild.platform.records import replace
from opbuild.target.level import BY_NAME, LEVELS, BuildTarget, DeviceTarget, Level, best_level
from opbuild.target.machine import KIB, Machine

_TRIPLES = {
    "x86_64": "x86-64-linux",
    "amd64": "x86-64-linux",
    "aarch64": "arm-64-linux",
    "arm64": "arm-64-linux",
    "riscv64": "riscv-64-linux",
}
"""Halide's names of the machines that ``uname -m`` names, the kernel's own spelling before others."""

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
"""https://docs.kernel.org/admin-guide/abi-testing.html, ``cpuX/cache/indexX``; of the first core, which is a guess
where cores are of several kinds."""
_DESCRIBED = ("type", "level", "size")
_CACHE_SIZES = {1: (4 * KIB, 16 * KIB * KIB), 2: (16 * KIB, 1024 * KIB * KIB)}
"""Bytes that a cache of a level may have; other numbers are not believed."""


@lru_cache(maxsize=1)
def host_level() -> Level:
    """Return the level of this machine.

    Raises:
        TargetError: If opbuild makes no code for this architecture or operating system.
    """
    return best_level(_triple(), host_flags())


@lru_cache(maxsize=1)
def host_flags() -> frozenset[str]:
    """Return the flags that ``/proc/cpuinfo`` lists for all cores."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""  # a sandbox without /proc: the base instruction set always runs
    return flags_in(text)


def flags_in(cpuinfo: str) -> frozenset[str]:
    """Return the flags in the text of a ``/proc/cpuinfo``; of cores of several kinds those that all have."""
    lines = (line.partition(":") for line in cpuinfo.split("\n"))
    lists = {said for name, colon, said in lines if colon and name.rstrip() in ("flags", "Features")}
    return frozenset.intersection(*(frozenset(said.split()) for said in lists)) if lists else frozenset()


def host_problem(level: Level) -> str | None:
    """Return the reason that code for a level cannot run on this machine, or None if it can.

    Code that uses an instruction that this machine lacks dies with SIGILL, so this is asked before an object is loaded.
    """
    host = host_level()
    if level.runs_on(host):
        return None
    if level.triple != host.triple:
        return f"it is for {level}, this machine is {host}"
    return f"it is for {level}, this machine is {host}: it lacks {', '.join(sorted(level.flags - host_flags()))}"


def needed_of_machine(level: Level) -> tuple[str, ...]:
    """Return the needs of code for a level: the machine as ``uname -m`` calls it, then words of ``/proc/cpuinfo``."""
    machine = next(name for name, triple in _TRIPLES.items() if triple == level.triple)
    return (machine, *sorted(level.flags))


def compared(level: BuildTarget, asked: Level | None = None, why: str = "") -> str:
    """Return a target's name, and where code for a higher level could have served, which one and why it does not.

    Args:
        level: Of the code that serves, or that beside a device.
        asked: The level that was asked for; None: this machine's.
        why: Why it is not that one's code.
    """
    host = host_level()
    wanted = asked or host
    if level.level == wanted:
        return level.name
    said = f"this machine has {wanted}" if wanted == host else f"{wanted} was asked for"
    return f"{level} ({'; '.join(filter(None, (said, why)))})"


@lru_cache(maxsize=1)
def host_machine() -> Machine:
    """Return this machine, as far as it is known; unknown parts are those of its level.

    Only what is called may depend on it, never what a key holds.
    """
    return machine_with_caches(Machine.of(host_level()), _CACHES, available_cores())


def machine_with_caches(machine: Machine, folder: Path, cores: int) -> Machine:
    """Return a machine with the caches that a folder of sysfs describes, as far as it does, and a number of cores."""
    sizes = _cache_sizes(folder)
    return replace(machine, l1=sizes.get(1, machine.l1), l2=sizes.get(2, machine.l2), cores=cores)


def _cache_sizes(folder: Path) -> dict[int, int]:
    """Return the bytes of a core's caches for data, by their level."""
    sizes: dict[int, int] = {}
    try:
        for index in sorted(name for name in os.listdir(folder) if name.startswith("index")):  # noqa: PTH208
            if len(sizes) == len(_CACHE_SIZES):
                break
            kind, level, size = ((folder / index / name).read_bytes().strip() for name in _DESCRIBED)
            if kind not in (b"Data", b"Unified") or level not in (b"1", b"2"):
                continue
            if not size.endswith(b"K") or not size[:-1].isdigit():
                continue
            least, most = _CACHE_SIZES[int(level)]
            nbytes = int(size[:-1]) * KIB
            if least <= nbytes <= most:
                sizes.setdefault(int(level), nbytes)
    except (OSError, ValueError):
        pass  # what was read counts
    return sizes


def _triple() -> str:
    machine, system = platform.machine().lower(), platform.system().lower()
    if machine not in _TRIPLES or system != "linux":
        raise TargetError(
            f"no code can be made for {machine} under {system}", "opbuild runs on Linux: x86-64, Arm, RISC-V"
        )
    return _TRIPLES[machine]


_FEATURES: dict[str, tuple[frozenset[str], ...]] = {
    "x86-64-v2": tuple(frozenset({each}) for each in ("sse41", "avx", "f16c", "fma")),
    "x86-64-v3": tuple(frozenset({each}) for each in ("avx2", "avx512", "avxvnni")),
    "x86-64-v4": tuple(frozenset({each}) for each in ("avx512_skylake", "avx512_cannonlake")),
    "x86-64-v4-bf16": tuple(frozenset({each}) for each in ("avx512_zen4", "avx512_zen5", "avx512_sapphirerapids")),
    "armv8.2-a-dotprod": (frozenset({"arm_dot_prod", "arm_fp16"}),),
}
"""For each level Halide's features that mean it: one of these sets, and every processor with it has all of the level.

AVX-512 of Knights Landing (``avx512``) is below ``x86-64-v4``, and AVX (``avx``) below ``x86-64-v3``."""

_OFFLINE = ("x86-64-linux", "arm-64-linux")
"""What offline models are made for; on other machines networks are built where they run."""
BUILDABLE = f"host, {', '.join(level.name for level in LEVELS if level.triple in _OFFLINE)}"
"""What may be named, for messages and help."""

_ASCEND = re.compile(r"(?i)(ascend|bs9sx|kirin|mc61|opt|soc)\w*")
_OF_LEVELS = {level.triple for level in LEVELS}


def parse_level(text: str) -> Level:
    """Return the level that ``text`` names.

    Args:
        text: A level's name, ``host``, or architecture, bits, system and features, e.g. ``x86-64-linux-avx2-fma``: the
            highest level that uses no others, and what every processor with them has.

    Raises:
        TargetError: If it names none; the hint lists those that there are.
    """
    if text == "host":
        return host_level()
    return BY_NAME.get(text) or _level_of_features(text)


def parse_target(text: str) -> BuildTarget:
    """Return the target that a text names.

    Args:
        text: A level, as ``parse_level`` takes it; a class of devices that was registered, beside this machine's CPU;
            or both, as ``DeviceTarget`` is written.

    Raises:
        TargetError: If it names none, or another device than there is here.
    """
    from opbuild.target.devices import device_class, is_known

    level, both, device = text.rpartition(" with ")
    name = device.partition(":")[0]
    if not is_known(name):
        if both:
            raise TargetError(f"no class of devices {name!r} is registered", "register it: opbuild.target.devices")
        return parse_level(text)
    target = device_class(name).target()
    if device not in (name, target.name):
        raise TargetError(f"it is for {device}, and the device here is {target}", f"build it for {name!r} here")
    return DeviceTarget(parse_level(level or "host"), target)


def resolve_target(text: str) -> BuildTarget:
    """Return the target that a text names where nothing but opbuild reads the artifacts.

    Raises:
        OptionError: If it names none; the hint lists the levels that there are.
    """
    from opbuild.target.devices import is_known

    return parse_target(text) if is_known(text) else resolve_level(text)


def resolve_level(text: str) -> Level:
    """Return the level that a text names, as ``parse_level`` does; offline models are for levels alone.

    Raises:
        OptionError: If it names none; the hint lists those that there are.
    """
    from opbuild.target.devices import is_known

    if is_known(text):
        message = f"target is {text!r}, a class of devices, and offline models are for CPUs alone"
        hint = f"opbuild.compile(model, target={text!r}) builds for it; a file may be for {BUILDABLE}"
        raise OptionError(message, hint)
    if _ASCEND.fullmatch(text):
        raise OptionError(f"target is {text!r}, and opbuild makes no code for NPUs", f"it may be {BUILDABLE}")
    try:
        level = parse_level(text)
    except TargetError as error:
        raise OptionError(f"target is {text!r}: {error.message}", error.hint) from error
    if level.triple not in _OFFLINE and text != "host":
        message = f"target is {text!r}, which opbuild makes no offline models for"
        raise OptionError(message, f"it may be {BUILDABLE}")
    return level


def _level_of_features(text: str) -> Level:
    parts = text.split("-")
    triple, features = "-".join(parts[:3]), frozenset(parts[3:])
    if triple not in _OF_LEVELS:
        raise TargetError(f"there is no level {text!r}", f"it may be {BUILDABLE}")
    own = [level for level in LEVELS if level.triple == triple]
    known = frozenset[str]().union(*(each for level in own for each in _FEATURES.get(level.name, ())))
    if unknown := features - known:
        message = f"there is no level {text!r}: {triple} has no feature {min(unknown)!r}"
        raise TargetError(message, f"it may be {BUILDABLE}")
    named = [level for level in own if any(each <= features for each in _FEATURES.get(level.name, ()))]
    return named[-1] if named else own[0]
