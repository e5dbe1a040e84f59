"""What tuning found, as lowering asks it: the records of the bank that count for a build, exact ones before near ones.

A record counts for its level, machine class and number of threads, and while its family's sources are what they were,
or define the kernels that were measured as they did.
It says that a variant beats the family's own for one question. For a question in the same bucket it counts where the
family's own answer is the same: then a claim about two variants is carried over, not a variant alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opbuild.errors import OptionError
from opbuild.events import Warned
from opbuild.families.catalogue import names
from opbuild.families.knowledge import Answer, Question, Variant
from opbuild.files.trust import PRIVATE
from opbuild.kernel.answers import Answered, Answers, digest_of
from opbuild.pipeline.setup import Setup, release_pack
from opbuild.platform.lazily import lazily
from opbuild.store.bank import Bank, Record, parse_bank, read_bank
from opbuild.store.machine_class import read_measured, system_class
from opbuild.store.pack import Pack
from opbuild.store.pack_file import PackFile
from opbuild.store.shipped import shipped_bank
from opbuild.text.canonical import canonical_json

if TYPE_CHECKING:
    from opbuild.files.trust import Trust
    from opbuild.graph.types import Graph
    from opbuild.kernel.reason import Reason
    from opbuild.lowering.context import Options
    from opbuild.program import Program


_SHIPPED = "shipped bank: "
"""What answers begin with that are from what the release brings."""


class BankKnowledge:
    """The records that count for a build.

    Args:
        records: Those of its level, machine class and number of threads.
        sources: Returns the digest of a family's sources.
        shipped: Those that the release brings, which count where the others know nothing.
        still: Whether a family's sources define what a record of others was measured of.

    Attributes:
        stale: The records that were of use but for other sources, by question.
    """

    def __init__(
        self,
        records: Mapping[Question, Record],
        sources: Callable[[str], str],
        shipped: Mapping[Question, Record] | None = None,
        still: Callable[[Record], bool] = lambda record: False,
    ) -> None:
        self._sources, self._still = sources, still
        self._shipped = {
            question: record
            for question, record in (shipped or {}).items()
            if question not in records or not self._counts(records[question])
        }
        self._exact = {**records, **self._shipped}
        self.stale: dict[Question, Record] = {}

    @lazily
    def _near(self) -> dict[Question, list[Record]]:
        """The records of each bucket; a network that is stored whole starts without."""
        found: defaultdict[Question, list[Record]] = defaultdict(list)
        for question, record in self._exact.items():
            found[bucket(question)].append(record)
        return found

    def answers(self, question: Question, default: Variant | None) -> Iterator[Answer]:
        """Return what records say of a question: its own, else of those in its bucket the nearest."""
        own = self._exact.get(question)
        if own is not None and self._counts(own) and own.default == default:
            said = "" if own.choice == default else self._said(own, "tuned")
            yield Answer(own.choice, said, self._is_shipped(own))
        elif own is not None:
            self.stale[question] = own
        near = sorted(
            self._near.get(bucket(question), ()), key=lambda each: (_distance(each, question), each.arguments)
        )
        for record in near:
            if record is own or not record.is_tuned or record.default != default or not self._counts(record):
                continue
            yield Answer(record.choice, self._said(record, "bucket: tuned at other sizes"), self._is_shipped(record))

    def comes_to(self, answers: Answers, *, with_pack: bool) -> bool:
        """Return whether each question of a network would be answered as it was, so that it is what is asked for.

        Args:
            answers: By which it was made.
            with_pack: Whether what the release's bank says is withheld where its pack lacks the kernels.
        """
        return all(self._choice(each, with_pack=with_pack) == each.choice for each in answers)

    def _choice(self, asked: Answered, *, with_pack: bool) -> Variant | None:
        passed = [said for said in asked.passed if with_pack or not said[1]]
        answers = self.answers(Question(asked.family, asked.arguments), asked.default)
        return next((each.variant for each in answers if (each.variant, each.is_shipped) not in passed), asked.default)

    def _counts(self, record: Record) -> bool:
        return record.sources == self._sources(record.family) or self._still(record)

    def _is_shipped(self, record: Record) -> bool:
        return self._shipped.get(Question(record.family, record.arguments)) is record

    def _said(self, record: Record, how: str) -> str:
        return f"{_SHIPPED * self._is_shipped(record)}{how} on {record.machine or record.system} {record.date[:10]}"


def knowledge(setup: Setup) -> BankKnowledge | None:
    """Return what tuning found for a build; None if nothing counts, as where there is no bank."""
    records, shipped = applying(_bank(setup)[0], setup), applying(_shipped(setup), setup)
    return BankKnowledge(records, family_sources, shipped, is_still_defined) if records or shipped else None


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


def lower_with_bank(graph: Graph, setup: Setup, options: Options) -> Program:
    """Return a graph lowered with the variants that tuning found, and what is said of them.

    What the release's bank chooses is taken where its kernels come with the release, so that a first start that
    compiles nothing without that bank compiles nothing with it. A bank that can not be read is told, and stops nothing.
    """
    from opbuild.lowering.lower import lower

    problem = _bank(setup)[1]
    if problem:
        setup.observer(Warned(f"{problem}; families choose variants by their tables"))
    from opbuild.lowering.tuned import Nothing, Tuned  # a network that is built starts without it

    pack, withheld = release_pack(setup), list[tuple[Question, Variant | None]]()
    known = knowledge(setup) or Nothing()
    while True:
        chosen = Tuned(known, withheld)
        program = lower(graph, setup.level, replace(options, kernels=chosen))
        lacking = set[str]() if pack is None else _lacking(program, pack)
        found = [
            (question, each.answer)
            for question, each in chosen.asked.items()
            if each.said and each.is_shipped and not each.sites.isdisjoint(lacking)
        ]
        if not found:
            return replace(program, tuned=chosen.notes(), answers=chosen.answers())
        withheld += found


def _lacking(program: Program, pack: Pack) -> set[str]:
    """Return the nodes whose kernels a pack lacks, of families that it has."""
    kernels = program.descriptors().items()
    return {node for desc, nodes in kernels if pack.file(desc.family) and not pack.has(desc) for node in nodes}


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


def is_current(record: Record) -> bool:
    """Return whether a record tells of what the sources of its family define now."""
    return record.family in names() and (record.sources == family_sources(record.family) or is_still_defined(record))


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
