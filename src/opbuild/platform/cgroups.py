"""How many cores a container may use: the limit that Docker and Kubernetes set, which no affinity mask shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

_UNLIMITED = math.inf
_Reader = Callable[[Path], tuple[int, int]]


@lru_cache(maxsize=1)
def cpu_limit(root: Path = Path("/")) -> int | None:
    """Return the number of cores that the control groups of this process allow, rounded up; None without a limit.

    Both versions of control groups are understood; the least limit from the process's group up to the root counts.
    The answer is kept for the process.

    Args:
        root: Where ``proc`` and ``sys`` are, for tests.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    cores = _UNLIMITED
    for line in lines:
        _, controllers, group = line.split(":", 2) if line.count(":") >= 2 else ("", "none", "")
        if not controllers:
            cores = min(cores, _least(root / "sys/fs/cgroup", group, _second_version))
        elif "cpu" in controllers.split(","):
            for mount in {controllers, "cpu"}:
                cores = min(cores, _least(root / "sys/fs/cgroup" / mount, group, _first_version))
    return max(1, math.ceil(cores)) if cores != _UNLIMITED else None


def _least(mount: Path, group: str, read: _Reader) -> float:
    """Return the least limit of a group and the groups above it; in a container only the mount's root may exist."""
    folder = mount / group.strip("/")
    cores = _UNLIMITED
    while True:
        try:
            quota, period = read(folder)
            cores = min(cores, quota / period if quota > 0 < period else _UNLIMITED)
        except (OSError, ValueError):
            pass  # no such group here, or no limit that is a number
        if folder == mount or mount not in folder.parents:
            return cores
        folder = folder.parent


def _second_version(folder: Path) -> tuple[int, int]:
    quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
    return int(quota), int(period)


def _first_version(folder: Path) -> tuple[int, int]:
    quota, period = (int((folder / f"cpu.cfs_{name}_us").read_text(encoding="utf-8")) for name in ("quota", "period"))
    return quota, period
