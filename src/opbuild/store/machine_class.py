"""Machine classes: machines that may share tuning records. They are named by quantities, never by a processor.

A class that was measured (``opbuild env --measure``) has caches and the rate of products at each level, in steps of
1.41. What else runs on a machine changes what is measured, so a machine keeps its class until a rate is clearly out of
it, and what was found on one that is a step away counts too: of twins each may be on another side of a bound.
Without a measurement a machine has the class that the system describes: level, caches and cores.

The release brings tuning databases by level and caches, so that a start looks for one file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from contextlib import suppress
from math import log2

from opbuild.config import Config
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.private import publish
from opbuild.platform.files.trust import Trust
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, field, replace
from opbuild.target.host import host_level, host_machine
from opbuild.target.level import Level
from opbuild.target.machine import KIB

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


MACHINE = "machine.json"
"""What was measured of the machine, beside the cache."""

_HERE = Path(os.path.realpath(__file__)).parent

SHIPPED = _HERE.parent / "tuning" / "banks"

_PACKS = _HERE / "packs"

LARGEST = 64 * 2**20
"""Bytes of a database at most; a record has some 500."""


def caches() -> str:
    """Return this machine's caches of a core, as names of machine classes have them."""
    machine = host_machine()
    return f"L1-{machine.l1 // KIB}K/L2-{machine.l2 // KIB}K"


def shipped_database(level: str) -> Path:
    """Return the path of the release's tuning database for this machine's caches and a level."""
    return SHIPPED / f"{level}_{caches().replace('/', '_')}.jsonl"


def deciding_digest(level: str, config: Config, trust: Trust, *, with_pack: bool) -> str:
    """Return a digest of all that decides tuning's answers for a level here; the databases are not looked into.

    So a network that is stored whole starts without reading records, most of which are for others.
    """
    found = [f"{caches()} {host_machine().cores} {config.num_threads} {with_pack} {_packed(level)}".encode()]
    path = shipped_database(level)
    found.append(path.read_bytes() if config.uses_shipped_bank and path.is_file() else b"")
    for path in (config.tune_bank, config.shared_folder / MACHINE):
        try:
            found.append(trust.read(path, LARGEST))
        except OSError:
            found.append(b"")
    return blake3_of(b" ".join(blake3_of(each).encode() for each in found))


def _packed(level: str) -> int:
    """Return the time when the kernels were packed that a level's records may have been measured of."""
    with suppress(OSError):
        return (_PACKS / level).stat().st_mtime_ns
    return 0


def shipped_databases(level: str) -> list[Path]:
    """Return the databases that the release has for a level, for machines of any caches."""
    return sorted(SHIPPED.glob(f"{level}_L1-*.jsonl"))
