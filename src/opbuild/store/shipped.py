"""The tuning banks that the release brings: one by level and caches, so that a start looks for one file."""

from __future__ import annotations

import os
from contextlib import suppress

from opbuild.config import Config
from opbuild.kernel.host import here
from opbuild.kernel.machine import KIB
from opbuild.platform.digest import blake3_of
from opbuild.platform.paths import Path

MACHINE = "machine.json"
"""What was measured of the machine, beside the cache."""

SHIPPED = Path(os.path.realpath(__file__)).parent.parent / "banks"


def caches() -> str:
    """Return this machine's caches of a core, as names of machine classes have them."""
    machine = here()
    return f"L1-{machine.l1 // KIB}K/L2-{machine.l2 // KIB}K"


def shipped_bank(level: str) -> Path:
    """Return where the release has the bank for this machine's caches and a level, if it has one."""
    return SHIPPED / f"{level}_{caches().replace('/', '_')}.jsonl"


def shipped_digest(level: str, config: Config) -> str:
    """Return a digest of all that decides what the release's bank answers for a level here; it is not looked into.

    So a network that is stored whole starts without reading records, most of which are for others.
    """
    found = [shipped_bank(level).read_bytes(), f"{config.num_threads} {here().cores}".encode()]
    with suppress(OSError):
        found.append((config.shared_folder / MACHINE).read_bytes())
    return blake3_of(b" ".join(blake3_of(each).encode() for each in found))


def shipped_banks(level: str) -> list[Path]:
    """Return the banks that the release has for a level, for machines of any caches."""
    return sorted(SHIPPED.glob(f"{level}_L1-*.jsonl"))
