"""A tuning database for readers; and carrying it from one machine to others."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.pipeline.setup import set_up
from opbuild.pipeline.tuned import applying, is_current
from opbuild.platform.files.private import publish
from opbuild.platform.files.trust import make_trust
from opbuild.platform.limits import unwritten
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple, dataclass, replace
from opbuild.store.tuning_database import TuningRecord, append_records, line_of, merged, read_database
from opbuild.target.host import host_level, host_problem
from opbuild.target.level import BY_NAME
from opbuild.text.plural import counted


class Listed(NamedTuple):
    """A record, and whether it counts here: ``counts``, ``stale``, ``elsewhere``, or ``open`` until a build asks it."""

    record: TuningRecord
    state: str


@dataclass(frozen=True)
class Listing:
    """The content of a tuning database: its file, the records that count for their places, its problems in words."""

    path: Path
    rows: tuple[Listed, ...]
    problems: tuple[str, ...]


def listed(config: Config) -> Listing:
    """Return the listing of the tuning database."""
    setup = set_up(config, host_level(), None)
    database = read_database(config.tune_bank, setup.trust)
    counts = {(each.level, each.threads) for each in database.records}
    setups = [
        replace(setup, level=BY_NAME[level], config=replace(setup.config, num_threads=threads))
        for level, threads in counts
        if level in BY_NAME and host_problem(BY_NAME[level]) is None
    ]
    here = {id(each) for some in setups for each in applying(database, some).values()}
    rows = []
    for record in database.latest().values():
        state = "counts" if id(record) in here else "elsewhere"
        rows.append(Listed(record, {True: state, False: "stale", None: "open"}[is_current(record, setup)]))
    stale = sum(each.state == "stale" for each in rows)
    problems = [
        f"{counted(stale, 'record')} of other sources of their families: not used, tune again" * bool(stale),
        f"{counted(database.damaged, 'line')} damaged: not used" * bool(database.damaged),
        f"{counted(database.unsigned, 'line')} not signed with the key: not used" * bool(database.unsigned),
    ]
    return Listing(config.tune_bank, tuple(rows), tuple(filter(None, problems)))


def export_database(config: Config, file: Path) -> int:
    """Write the records that count for their places into a file, and return how many there are."""
    trust = make_trust(config)
    records = read_database(config.tune_bank, trust).latest().values()
    try:
        publish(file.absolute(), b"".join(line_of(each, trust) + b"\n" for each in records))
    except OSError as error:
        raise unwritten(repr(str(file)), error, "name a file in a folder that you may write to") from error
    return len(records)


def import_databases(config: Config, files: Sequence[Path]) -> tuple[int, int]:
    """Add the records of other databases; return how many were added, and how many lines were left out."""
    trust = make_trust(config)
    for file in files:
        is_there = False
        with suppress(OSError):  # nor is one whose name is too long
            is_there = file.is_file()
        if not is_there:
            raise OptionError(f"there is no file {str(file)!r}", "give the files that 'opbuild bank export' wrote")
    others = [read_database(file.absolute(), trust) for file in files]
    for file, other in zip(files, others, strict=True):
        if other.damaged and not other.records and not other.unsigned:
            raise OptionError(f"{str(file)!r} is no tuning database", "give the files that 'opbuild bank export' wrote")
    added = merged(read_database(config.tune_bank, trust), others)
    append_records(config.tune_bank, added, trust)
    return len(added), sum(each.damaged + each.unsigned for each in others)
