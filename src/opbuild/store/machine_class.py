"""Machine classes: machines that may share tuning records. They are named by quantities, never by a processor.

A class that was measured (``opbuild env --measure``) has caches and the rate of products at each level, in steps of
1.41. What else runs on a machine changes what is measured, so a machine keeps its class until a rate is clearly out of
it, and what was found on one that is a step away counts too: of twins each may be on another side of a bound.
Without a measurement a machine has the class that the system describes: level, caches and cores.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from math import log2

from opbuild.config import Config
from opbuild.files.private import publish
from opbuild.files.trust import Trust
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, field, replace
from opbuild.store.shipped import MACHINE, caches
from opbuild.target.host import host_level, host_machine
from opbuild.target.level import Level

_STEPS = 2
"""Steps of a rate in a factor of 2."""

_KEPT = 1.5
"""Steps that a rate may be from the middle of a machine's class before it is out of it: a factor of 1.68."""

_NEAR = 1.25
"""Steps between the classes of machines that share what was found: one, and what names of classes are rounded by."""


@dataclass(frozen=True)
class MeasuredMachine:
    """The measurements of a machine.

    Attributes:
        system: The class that the system described then; of another machine nothing here is believed.
        peak: Multiplications and additions in a nanosecond of one core, in float32, by level.
        date: When, in UTC.
        classes: The rates that name its class, by level; one that is not there is the step nearest to ``peak``.
    """

    system: str
    peak: Mapping[str, float] = field(default_factory=dict)
    date: str = ""
    classes: Mapping[str, float] = field(default_factory=dict)

    def name(self, level: str) -> str:
        """Return the name of the class for code of a level; empty if that was not measured."""
        return f"{self._rate(level):.0f}GF/{caches()}" if level in self.peak else ""

    def shares(self, name: str, level: str) -> float | None:
        """Return the distance of a class, in steps of the rate; None if results found there do not count here."""
        rate, _, rest = name.partition("GF/")
        if level not in self.peak or rest != caches() or not rate.isdecimal():
            return None
        steps = _steps_between(float(rate), self._rate(level))
        return steps if steps <= _NEAR else None

    def after(self, before: MeasuredMachine | None) -> MeasuredMachine:
        """Return it in the class that was measured before, at each level whose rate is not clearly out of it."""
        known = before.peak if before is not None and before.system == self.system else {}
        kept = {level: before._rate(level) for level in known if before is not None}
        return replace(
            self,
            classes={
                level: kept[level] if level in kept and _steps_between(rate, kept[level]) <= _KEPT else _middle(rate)
                for level, rate in self.peak.items()
            },
        )

    def _rate(self, level: str) -> float:
        return self.classes.get(level) or _middle(self.peak[level])


def _middle(rate: float) -> float:
    return 2 ** (round(_STEPS * log2(max(rate, 1.0))) / _STEPS)


def _steps_between(one: float, other: float) -> float:
    return _STEPS * abs(log2(max(one, 1.0) / max(other, 1.0)))


def system_class(level: Level | None = None) -> str:
    """Return the class of this machine as the system describes it; for a lower level as if it had no more."""
    return f"{level or host_level()}/{caches()}/{host_machine().cores}cores"


def machine_file(config: Config) -> Path:
    """Return the file that keeps the measurements."""
    return config.shared_folder / MACHINE


def read_measured(config: Config, trust: Trust) -> MeasuredMachine | None:
    """Return the measurements of this machine; None if there are none, or only of another one."""
    try:
        content = trust.read_memo(machine_file(config))
        content.pop("waking", None)  # earlier releases measured it
        found = MeasuredMachine(**content)
        sound = all(found.name(level) for level in found.peak) and all(_middle(r) == r for r in found.classes.values())
        if sound and found.system == system_class():
            return found
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
        pass  # as if it was never measured
    return None


def write_measured(config: Config, trust: Trust, measured: MeasuredMachine) -> bool:
    """Keep the measurements; return whether the folder can be written."""
    path = machine_file(config)
    with contextlib.suppress(OSError):
        publish(path, trust.write_memo(path, vars(measured)))
        return True
    return False
