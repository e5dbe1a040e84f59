"""What tuning found, as lowering asks it: the records of the bank that count for a build, exact ones before near ones.

A record counts for its level, machine class and number of threads, and while its family's sources are what they were,
or define the kernels that were measured as they did. The pack tells that, or what is remembered of operators
(``store.origins``); of what neither knows it is found out in a compile worker once a build has use for the record.
It says that a variant beats the family's own for one question. For a question in the same bucket it counts where the
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
from opbuild.families.knowledge import Answer, Question, Variant
from opbuild.files.trust import PRIVATE
from opbuild.kernel.answers import Answered, Answers, digest_of
from opbuild.kernel.opdesc import OpDesc
from opbuild.pipeline.setup import Setup
from opbuild.platform.lazily import lazily
from opbuild.platform.paths import Path
from opbuild.store.bank import Bank, Record, parse_bank, read_bank
from opbuild.store.blobs import Folder, LocalMemos
from opbuild.store.machine_class import read_measured, system_class
from opbuild.store.origins import SUFFIX, Origins
from opbuild.store.pack import Pack
from opbuild.store.pack_file import PackFile
from opbuild.store.shipped import shipped_bank
from opbuild.text.canonical import canonical_json

if TYPE_CHECKING:
    from opbuild.files.trust import Trust
    from opbuild.kernel.reason import Reason


_SHIPPED = "shipped bank: "
"""What answers begin with that are from what the release brings."""


class BankKnowledge:
    """The records that count for a build.

    Args:
        records: Those of its level, machine class and number of threads.
        is_current: Says whether a record tells of what its family's sources define now; None: it is to be found out.
        shipped: Those that the release brings, which count where the others know nothing.

    Attributes:
        stale: The records that were of use but for other sources, by question.
        open: The records that answered, of which it is to be found out whether they count, by question.
    """

    def __init__(
        self,
        records: Mapping[Question, Record],
        is_current: Callable[[Record], bool | None],
        shipped: Mapping[Question, Record] | None = None,
    ) -> None:
        self._records, self._shipped = dict(records), dict(shipped or {})
        self._is_current = is_current
        self._found: dict[int, bool | None] = {}
        self.stale: dict[Question, Record] = {}
        self.open: dict[Question, Record] = {}

    @lazily
    def _near(self) -> dict[Question, list[Record]]:
        """The records of each bucket; a network that is stored whole starts without."""
        found: defaultdict[Question, list[Record]] = defaultdict(list)
        for question, record in chain(self._records.items(), self._shipped.items()):
            found[bucket(question)].append(record)
        return found

    def answers(self, question: Question, default: Variant | None) -> Iterator[Answer]:
        """Return what records say of a question: its own, else of those in its bucket the nearest."""
        self.open.pop(question, None)
        own = [each[question] for each in (self._records, self._shipped) if question in each]
        for record in own:
            if self._may_answer(record, default):
                yield self._answer(question, record, "" if record.choice == default else "tuned")
            elif not self._is_replaced(record):
                self.stale[question] = record
        near = sorted(
            self._near.get(bucket(question), ()), key=lambda each: (_distance(each, question), each.arguments)
        )
        for record in near:
            if record not in own and record.is_tuned and self._may_answer(record, default):
                yield self._answer(question, record, "bucket: tuned at other sizes")
        self.open.pop(question, None)

    def comes_to(self, answers: Answers, *, with_pack: bool) -> bool:
        """Return whether each question of a network would be answered as it was, so that it is what is asked for.

        Where it is to be found out yet whether a record counts that answers, that is not known.

        Args:
            answers: By which it was made.
            with_pack: Whether what the release's bank says is withheld where its pack lacks the kernels.
        """
        return all(
            self._choice(each, with_pack=with_pack) == each.choice
            and Question(each.family, each.arguments) not in self.open
            for each in answers
        )

    def settle(self, found: Mapping[Question, bool]) -> None:
        """Take note of what was found out of records that answered; one that answered several may count for one."""
        for question, counts in found.items():
            record = id(self.open.pop(question))
            self._found[record] = counts or bool(self._found[record])

    def _choice(self, asked: Answered, *, with_pack: bool) -> Variant | None:
        passed = [said for said in asked.passed if with_pack or not said[1]]
        answers = self.answers(Question(asked.family, asked.arguments), asked.default)
        return next((each.variant for each in answers if (each.variant, each.is_shipped) not in passed), asked.default)

    def _may_answer(self, record: Record, default: Variant | None) -> bool:
        """Return whether a record may answer; whether it counts may have to be found out yet."""
        return record.default == default and not self._is_replaced(record) and self._counts(record) is not False

    def _answer(self, question: Question, record: Record, how: str) -> Answer:
        if self._counts(record) is None:
            self.open[question] = record
        else:
            self.open.pop(question, None)
        return Answer(record.choice, how and self._said(record, how), self._is_shipped(record))

    def _counts(self, record: Record) -> bool | None:
        if id(record) not in self._found:
            self._found[id(record)] = self._is_current(record)
        return self._found[id(record)]

    def _is_replaced(self, record: Record) -> bool:
        """Return whether a record is the release's, and the user's own bank knows better."""
        own = self._records.get(Question(record.family, record.arguments))
        return self._is_shipped(record) and own is not None and self._counts(own) is not False

    def _is_shipped(self, record: Record) -> bool:
        return self._shipped.get(Question(record.family, record.arguments)) is record

    def _said(self, record: Record, how: str) -> str:
        return f"{_SHIPPED * self._is_shipped(record)}{how} on {record.machine or record.system} {record.date[:10]}"


def knowledge(setup: Setup) -> BankKnowledge | None:
    """Return what tuning found for a build; None if nothing counts, as where there is no bank."""
    records, shipped = applying(_bank(setup)[0], setup), applying(_shipped(setup), setup)
    return BankKnowledge(records, partial(is_current, setup=setup), shipped) if records or shipped else None


def chosen_answers(made: Iterable[Answers], setup: Setup) -> str | None:
    """Return the digest of the answers that what tuning found comes to for a network, which is not lowered for that.

    Args:
        made: The answers by which it was made, here or elsewhere, with other banks.
        setup: What it is built for.

    Returns:
        Empty if they are the families' own; None if none of those were made with what is known here.
    """
    known = knowledge(setup)
    if known is None:
        return ""
    return next((digest_of(each) for each in made if known.comes_to(each, with_pack=setup.uses_pack)), None)


def applying(bank: Bank, setup: Setup) -> dict[Question, Record]:
    """Return the records of a bank for the level, the machine and the threads of a build, by question.

    Of several that count for one the one of the nearest class does, of these the latest.
    """
    level, threads, system = setup.level.name, setup.config.num_threads, system_class(setup.level)
    measured = read_measured(setup.config, setup.trust)
    is_measured = measured is not None and bool(measured.name(level))

    def distance(record: Record) -> float | None:
        if measured is not None and is_measured and record.machine:
            return measured.shares(record.machine, level)
        return 0.0 if record.system == system else None

    mine = (each for each in bank.records if (each.level, each.threads) == (level, threads))
    near = [(far, each) for each in mine if (far := distance(each)) is not None]
    near.sort(key=lambda each: -each[0])
    return {Question(each.family, each.arguments): each for _, each in near}


def bucket(question: Question) -> Question:
    """Return what stands for all questions whose numbers have as many binary digits; all else of them is equal."""
    return Question(question.family, canonical_json(_rounded(_parsed(question.arguments))))


@lru_cache(maxsize=1)
def _modules() -> Any:
    from opbuild.backend.halide.driver import UNDECIDING  # where no record counts nothing of it is needed
    from opbuild.platform.imports import Modules
    from opbuild.platform.release import code

    return Modules(without=UNDECIDING, digested=code)  # a checkout's is that of the release that is made of it


@lru_cache(maxsize=64)
def family_sources(name: str) -> str:
    """Return the digest of what decides about a family's kernels: the code that computes them, and not its comments.

    How the family chooses is none of it: what it would choose, and among what, is compared with each record.
    """
    modules = [f"opbuild.families.{name}.{part}" for part in ("definition", "schedule")]
    return str(_modules().digest(tuple(modules)))


def is_current(record: Record, setup: Setup) -> bool | None:
    """Return whether a record tells of what the sources of its family define now; None: it is to be found out."""
    if record.family not in names():
        return False
    if record.sources == family_sources(record.family) or is_still_defined(record):
        return True
    return _is_remembered(record, setup)


def _is_remembered(record: Record, setup: Setup) -> bool | None:
    """Return whether what is remembered of operators says that a record's are what they were; None: it says nothing."""
    sources = setup.compiler.sources_digest(OpDesc((), record.family, (), ()))
    origins = Origins(LocalMemos(Folder(setup.config.network_meta, setup.trust, is_judged=True), SUFFIX))
    stems = record.kernels if setup.config.uses_folder else ()
    known = {stem: origins.pipeline(stem, sources) for stem in stems}
    if not known or any(each and each != record.kernels[stem] for stem, each in known.items()):
        return False
    return True if all(known.values()) else None


def is_still_defined(record: Record) -> bool:
    """Return whether a family's sources define what a record of others was measured of, as far as the pack tells."""
    file = Pack(record.level).file(record.family)
    return was_measured(record, file) and isinstance(file, PackFile) and file.sources.code == _emitted(record.family)


def was_measured(record: Record, file: PackFile | Reason | None) -> bool:
    """Return whether a record was measured of just the kernels that a file of the pack has."""
    return isinstance(file, PackFile) and bool(record.kernels) and file.has_compiled(record.kernels)


@lru_cache(maxsize=64)
def _emitted(name: str) -> str:
    """Return the digest that a release has of all that defines a family's kernels, and of what emits them."""
    from opbuild.backend.halide.driver import EMISSION

    modules = [f"opbuild.families.{name}.{part}" for part in ("definition", "schedule")]
    return str(_modules().digest((EMISSION, *modules)))


def bank_problem(setup: Setup) -> str:
    """Return why the bank of a build can not be read; empty if it can."""
    return _bank(setup)[1]


def _bank(setup: Setup) -> tuple[Bank, str]:
    """Return the bank of a build, and why it can not be read if it can not."""
    path = setup.config.tune_bank
    try:
        state = path.stat()
    except OSError:
        return Bank(), ""
    return _read((str(path), state.st_mtime_ns, state.st_size, state.st_ino), setup.trust)


def _shipped(setup: Setup) -> Bank:
    """Return the bank that the release brings for such a machine; as its code it needs no signature."""
    path = shipped_bank(setup.level.name)
    return _parsed_file(path) if setup.config.uses_shipped_bank and path.is_file() else Bank()


@lru_cache(maxsize=4)
def _parsed_file(path: Path) -> Bank:
    return parse_bank(path.read_bytes(), PRIVATE)


@lru_cache(maxsize=4)
def _read(known: tuple[str, int, int, int], trust: Trust) -> tuple[Bank, str]:
    try:
        return read_bank(Path(known[0]), trust), ""
    except OptionError as error:
        return Bank(), error.message


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):  # what no lowering asks
        return None


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return value.bit_length() if isinstance(value, int) and not isinstance(value, bool) else value


def _distance(record: Record, question: Question) -> float:
    """Return how far the numbers of a record of the same bucket are, in powers of two."""
    pairs = zip(_numbers(_parsed(record.arguments)), _numbers(_parsed(question.arguments)), strict=True)
    return sum(abs(log2(max(one, 1)) - log2(max(other, 1))) for one, other in pairs)


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value
