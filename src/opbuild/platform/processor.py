"""The processor's name and nominal peak, to which measured rates are compared."""

from __future__ import annotations

import platform
import re

from opbuild.platform.paths import Path

_CPUINFO = Path("/proc/cpuinfo")


_FREQUENCY = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")


def processor_name(cpuinfo: Path = _CPUINFO) -> str:
    """Return the processor's name, its architecture where the system has no name for it."""
    names = (line.partition(":")[2].strip() for line in _read(cpuinfo).splitlines() if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def gigahertz(frequency: Path = _FREQUENCY) -> float | None:
    """Return the greatest clock that the system allows; None if it names none.

    The clock that virtual machines report in its place is less than what their cores run at.
    """
    try:
        return int(frequency.read_text(encoding="ascii")) / 1e6
    except (OSError, ValueError):
        return None


def nominal_gflops(lanes: int, threads: int, cpuinfo: Path = _CPUINFO, frequency: Path = _FREQUENCY) -> float | None:
    """Return float32 multiplications and additions in a nanosecond: lanes, two units, two a lane, the clock.

    AMD's cores before Zen 5 (family 25) have one unit of 512 bits, whose two halves serve 256 bits each.
    """
    clock = gigahertz(frequency)
    if clock is None:
        return None
    text = _read(cpuinfo)
    halved = "AuthenticAMD" in text and re.search(r"^cpu family\s*:\s*25$", text, re.MULTILINE) and lanes == 16
    return lanes * (1 if halved else 2) * 2 * clock * threads


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
