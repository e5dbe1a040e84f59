"""The tuning databases that the release brings: one by level and caches, so that a start looks for one file."""

from __future__ import annotations

import os
from contextlib import suppress

from opbuild.config import Config
from opbuild.files.trust import Trust
from opbuild.platform.digest import blake3_of
from opbuild.platform.paths import Path
from opbuild.target.host import host_machine
from opbuild.target.machine import KIB

MACHINE = "machine.json"
"""What was measured of the machine, beside the cache."""

SHIPPED = Path(os.path.realpath(__file__)).parent.parent / "banks"

_PACKS = SHIPPED.parent / "packs"

LARGEST = 64 * 2**20
"""Bytes of a bank at most; a record has some 500."""


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

    Args:
        level: The level.
        config: Threads, and where the banks and what was measured of the machine are.
        trust: Whose files are believed.
        with_pack: Whether operators are taken from what the release brings.
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
    """Return the banks that the release has for a level, for machines of any caches."""
    return sorted(SHIPPED.glob(f"{level}_L1-*.jsonl"))
