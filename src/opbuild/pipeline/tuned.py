"""Tuning records as lowering asks for them: those that count for a build, exact ones before near ones.

A record counts for its level, machine class and number of threads, and while its family's sources are what they were,
or define the kernels that were measured as they did. The pack tells that, or what is remembered of operators
(``store.hints``); of what neither knows it is found out in a compile worker once a build has use for the record.
It says that a variant beats the family's own for one query. For a query in the same bucket it counts where the
family's own answer is the same: then a claim about two variants is carried over, not a variant alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import chain
from math import log2
from typing import TYPE_CHECKING, Any

from opbuild.errors import OptionError
from opbuild.families.catalogue import names
from opbuild.families.family import TunedVariant, TuningQuery, Variant
from opbuild.kernel.networks import Answered, Answers, digest_of
from opbuild.kernel.opdesc import OpDesc
from opbuild.pipeline.setup import Setup
from opbuild.platform.files.trust import PRIVATE
from opbuild.platform.locks import lazy_property
from opbuild.platform.paths import Path
from opbuild.store.blobs import Folder, LocalMemos
from opbuild.store.hints import ORIGINS_SUFFIX, Origins
from opbuild.store.machine_class import read_measured, shipped_database, system_class
from opbuild.store.pack import Pack, PackFile
from opbuild.store.tuning_database import TuningDatabase, TuningRecord, parse_database, read_database
from opbuild.text.canonical import canonical_json

if TYPE_CHECKING:
    from opbuild.backend.family_compiler import FamilyCompiler
    from opbuild.kernel.reason import Reason
    from opbuild.platform.files.trust import Trust


_SHIPPED = "shipped tuning database: "
"""What answers begin with that are from what the release brings."""


class ApplicableRecords:
    """The records that count for a build.

    Args:
        records: Those of its level, machine class and number of threads.
        is_current: Says whether a record tells of what its family's sources define now; None: it is to be found out.
        shipped: Those that the release brings, which count where the others know nothing.

    Attributes:
        stale: The records that were of use but for other sources, by query.
        open: The records that answered, of which it is to be found out whether they count, by query.
    """

    def __init__(
        self,
        records: Mapping[TuningQuery, TuningRecord],
        is_current: Callable[[TuningRecord], bool | None],
        shipped: Mapping[TuningQuery, TuningRecord] | None = None,
    ) -> None:
        self._records, self._shipped = dict(records), dict(shipped or {})
        self._is_current = is_current
        self._found: dict[int, bool | None] = {}
        self.stale: dict[TuningQuery, TuningRecord] = {}
        self.open: dict[TuningQuery, TuningRecord] = {}

    @lazy_property
    def _by_bucket(self) -> dict[TuningQuery, list[TuningRecord]]:
        """The records of each bucket; a network that is stored whole starts without."""
        found: defaultdict[TuningQuery, list[TuningRecord]] = defaultdict(list)
        for query, record in chain(self._records.items(), self._shipped.items()):
            found[bucket(query)].append(record)
        return found

    def answers(self, query: TuningQuery, default: Variant | None) -> Iterator[TunedVariant]:
        """Return the answers that records give to a query: its own, else of those in its bucket the nearest."""
        self.open.pop(query, None)
        own = [each[query] for each in (self._records, self._shipped) if query in each]
        for record in own:
            if self._may_answer(record, default):
                yield self._answer(query, record, "" if record.choice == default else "tuned")
            elif not self._is_replaced(record):
                self.stale[query] = record
        near = sorted(self._by_bucket.get(bucket(query), ()), key=lambda each: (_distance(each, query), each.arguments))
        for record in near:
            if record not in own and record.is_tuned and self._may_answer(record, default):
                yield self._answer(query, record, "bucket: tuned at other sizes")
        self.open.pop(query, None)

    def comes_to(self, answers: Answers, *, with_pack: bool) -> bool:
        """Return whether each query of a network would be answered as it was, so that it is the one asked for.

        Where it is to be found out yet whether a record counts that answers, that is not known.

        Args:
            answers: By which it was made.
            with_pack: Whether what the release's database says is withheld where its pack lacks the kernels.
        """
        return all(
            self._choice(each, with_pack=with_pack) == each.choice
            and TuningQuery(each.family, each.arguments) not in self.open
            for each in answers
        )

    def settle(self, found: Mapping[TuningQuery, bool]) -> None:
        """Take note of findings on records that answered; one that answered several may count for one."""
        for query, counts in found.items():
            record = id(self.open.pop(query))
            self._found[record] = counts or bool(self._found[record])

    def _choice(self, asked: Answered, *, with_pack: bool) -> Variant | None:
        passed = [each for each in asked.passed if with_pack or not each[1]]
        answers = self.answers(TuningQuery(asked.family, asked.arguments), asked.default)
        return next((each.variant for each in answers if (each.variant, each.is_shipped) not in passed), asked.default)

    def _may_answer(self, record: TuningRecord, default: Variant | None) -> bool:
        """Return whether a record may answer; whether it counts may have to be found out yet."""
        return record.default == default and not self._is_replaced(record) and self._counts(record) is not False

    def _answer(self, query: TuningQuery, record: TuningRecord, how: str) -> TunedVariant:
        if self._counts(record) is None:
            self.open[query] = record
        else:
            self.open.pop(query, None)
        return TunedVariant(record.choice, how and self._origin_text(record, how), self._is_shipped(record))

    def _counts(self, record: TuningRecord) -> bool | None:
        if id(record) not in self._found:
            self._found[id(record)] = self._is_current(record)
        return self._found[id(record)]

    def _is_replaced(self, record: TuningRecord) -> bool:
        """Return whether a record is the release's, and the user's own database knows better."""
        own = self._records.get(TuningQuery(record.family, record.arguments))
        return self._is_shipped(record) and own is not None and self._counts(own) is not False

    def _is_shipped(self, record: TuningRecord) -> bool:
        return self._shipped.get(TuningQuery(record.family, record.arguments)) is record

    def _origin_text(self, record: TuningRecord, how: str) -> str:
        return f"{_SHIPPED * self._is_shipped(record)}{how} on {record.machine or record.system} {record.date[:10]}"


def applicable_records(setup: Setup) -> ApplicableRecords | None:
    """Return the tuning records for a build; None if none counts, as where there is no tuning database."""
    records, shipped = applying(_own_database(setup)[0], setup), applying(_shipped(setup), setup)
    return ApplicableRecords(records, partial(is_current, setup=setup), shipped) if records or shipped else None


def chosen_answers(made: Iterable[Answers], setup: Setup) -> str | None:
    """Return the digest of tuning's answers for a network, which is not lowered for that.

    Returns:
        Empty if they are the families' own; None if none of those were made with what is known here.
    """
    known = applicable_records(setup)
    if known is None:
        return ""
    return next((digest_of(each) for each in made if known.comes_to(each, with_pack=setup.uses_pack)), None)


def applying(database: TuningDatabase, setup: Setup) -> dict[TuningQuery, TuningRecord]:
    """Return the records of a database for the level, the machine and the threads of a build, by query.

    Of several that count for one the one of the nearest class does, of these the latest.
    """
    level, threads, system = setup.level.name, setup.config.num_threads, system_class(setup.level)
    measured = read_measured(setup.config, setup.trust)
    is_measured = measured is not None and bool(measured.name(level))

    def distance(record: TuningRecord) -> float | None:
        if measured is not None and is_measured and record.machine:
            return measured.shares(record.machine, level)
        return 0.0 if record.system == system else None

    mine = (each for each in database.records if (each.level, each.threads) == (level, threads))
    near = [(far, each) for each in mine if (far := distance(each)) is not None]
    near.sort(key=lambda each: -each[0])
    return {TuningQuery(each.family, each.arguments): each for _, each in near}


def bucket(query: TuningQuery) -> TuningQuery:
    """Return the query that stands for all whose numbers have as many binary digits; all else of them is equal."""
    return TuningQuery(query.family, canonical_json(_rounded(_parsed(query.arguments))))


@lru_cache(maxsize=1)
def _compiler() -> FamilyCompiler:
    from opbuild.backend.halide.driver import HalideCompiler  # where no record counts nothing of it is needed

    return HalideCompiler()


@lru_cache(maxsize=64)
def family_sources(name: str) -> str:
    """Return the digest of the code that decides a family's kernels, and not its comments.

    How the family chooses is none of it: what it would choose, and among what, is compared with each record.
    """
    return _compiler().released.digest((_compiler().module_of(name),))


def is_current(record: TuningRecord, setup: Setup) -> bool | None:
    """Return whether a record is of the pipelines that its family's sources define now; None: it is to be found out."""
    if record.family not in names():
        return False
    if record.sources == family_sources(record.family) or is_still_defined(record):
        return True
    return _is_remembered(record, setup)


def _is_remembered(record: TuningRecord, setup: Setup) -> bool | None:
    """Return whether the origins of operators confirm a record's pipelines; None: they say nothing."""
    sources = setup.compiler.sources_digest(OpDesc((), record.family, (), ()))
    origins = Origins(LocalMemos(Folder(setup.config.network_meta, setup.trust, is_judged=True), ORIGINS_SUFFIX))
    stems = record.kernels if setup.config.uses_folder else ()
    known = {stem: origins.pipeline(stem, sources) for stem in stems}
    if not known or any(each and each != record.kernels[stem] for stem, each in known.items()):
        return False
    return True if all(known.values()) else None


def is_still_defined(record: TuningRecord) -> bool:
    """Return whether a family's sources define the pipelines of a record of others, as far as the pack tells."""
    file = Pack(record.level).file(record.family)
    return (
        was_measured(record, file)
        and isinstance(file, PackFile)
        and file.sources.code == released_sources(record.family)
    )


def was_measured(record: TuningRecord, file: PackFile | Reason | None) -> bool:
    """Return whether a record was measured of just the kernels that a file of the pack has."""
    return isinstance(file, PackFile) and bool(record.kernels) and file.has_compiled(record.kernels)


@lru_cache(maxsize=64)
def released_sources(name: str) -> str:
    """Return the digest that a release has of all that defines and emits a family's kernels."""
    return _compiler().released_digest(OpDesc((), name, (), ()))


def database_problem(setup: Setup) -> str:
    """Return the reason that the tuning database of a build cannot be read; empty if it can."""
    return _own_database(setup)[1]


def _own_database(setup: Setup) -> tuple[TuningDatabase, str]:
    """Return the database of a build, and why it cannot be read if it cannot."""
    path = setup.config.tune_bank
    try:
        state = path.stat()
    except OSError:
        return TuningDatabase(), ""
    return _read((str(path), state.st_mtime_ns, state.st_size, state.st_ino), setup.trust)


def _shipped(setup: Setup) -> TuningDatabase:
    """Return the database that the release brings for such a machine; as its code it needs no signature."""
    path = shipped_database(setup.level.name)
    return _parsed_file(path) if setup.config.uses_shipped_bank and path.is_file() else TuningDatabase()


@lru_cache(maxsize=4)
def _parsed_file(path: Path) -> TuningDatabase:
    return parse_database(path.read_bytes(), PRIVATE)


@lru_cache(maxsize=4)
def _read(known: tuple[str, int, int, int], trust: Trust) -> tuple[TuningDatabase, str]:
    try:
        return read_database(Path(known[0]), trust), ""
    except OptionError as error:
        return TuningDatabase(), error.message


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):  # what no lowering asks
        return None


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return value.bit_length() if isinstance(value, int) and not isinstance(value, bool) else value


def _distance(record: TuningRecord, query: TuningQuery) -> float:
    """Return the distance of the numbers of a record of the same bucket, in powers of two."""
    pairs = zip(_numbers(_parsed(record.arguments)), _numbers(_parsed(query.arguments)), strict=True)
    return sum(abs(log2(max(one, 1)) - log2(max(other, 1))) for one, other in pairs)


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value
