"""Machine classes: which machines may share what tuning found. They are named by quantities, never by a processor.

A class that was measured (``opbuild env --measure``) has the rate of products at each level, caches, and what waking a
thread costs, each rounded so that a second measurement of a machine, or of its twin, gives the same name. Without a
measurement a machine has the class that the system describes: level, caches and cores.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, field
from math import log2
from pathlib import Path

from opbuild.config import Config
from opbuild.files.private import publish
from opbuild.files.trust import Trust
from opbuild.kernel.host import here, host_level
from opbuild.kernel.level import Level
from opbuild.platform.records import dataclass
from opbuild.store.shipped import MACHINE, caches


@dataclass(frozen=True)
class Measured:
    """What was measured of a machine.

    Attributes:
        system: The class that the system described then; of another machine nothing here is believed.
        peak: Multiplications and additions in a nanosecond of one core, in float32, by level.
        waking: Nanoseconds that a call takes longer if a second thread is woken for it; 0 with one core.
        date: When, in UTC.
    """

    system: str
    peak: Mapping[str, float] = field(default_factory=dict)
    waking: float = 0.0
    date: str = ""

    def name(self, level: str, threads: int) -> str:
        """Return the name of the class for code of a level; empty if that was not measured.

        For one thread, which wakes nobody, it is without what waking costs.
        """
        if level not in self.peak:
            return ""
        rate = 2 ** (round(2 * log2(max(self.peak[level], 1.0))) / 2)  # steps of 1.41
        waking = 4 ** round(log2(max(self.waking, 1.0) / 1e3) / 2)  # steps of 4
        return f"{rate:.0f}GF/{caches()}" + (f"/wake-{waking:g}us" if self.waking and threads > 1 else "")


def system_class(level: Level | None = None) -> str:
    """Return the class of this machine as the system describes it; for a lower level as if it had no more."""
    return f"{level or host_level()}/{caches()}/{here().cores}cores"


def machine_file(config: Config) -> Path:
    """Return where it is kept what was measured."""
    return config.shared_folder / MACHINE


def read_measured(config: Config, trust: Trust) -> Measured | None:
    """Return what was measured of this machine; None if nothing was, or only of another one."""
    try:
        found = Measured(**trust.read_memo(machine_file(config)))
        if found.system == system_class() and all(found.name(level, 1) for level in found.peak):
            return found
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        pass  # as if it was never measured
    return None


def write_measured(config: Config, trust: Trust, measured: Measured) -> bool:
    """Keep what was measured; return whether the folder can be written."""
    path = machine_file(config)
    with contextlib.suppress(OSError):
        publish(path, trust.write_memo(path, asdict(measured)))
        return True
    return False
