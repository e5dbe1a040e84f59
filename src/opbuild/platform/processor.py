"""The processor's name."""

from __future__ import annotations

import platform

from opbuild.platform.paths import Path

_CPUINFO = Path("/proc/cpuinfo")


def processor_name(cpuinfo: Path = _CPUINFO) -> str:
    """Return the processor's name, its architecture where the system has no name for it."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
