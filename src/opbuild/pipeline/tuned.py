"""What tuning found, as lowering asks it: the records of the bank that count for a build, exact ones before near ones.

A record counts for its level, machine class and number of threads, and while its family's sources are what they were.
It says that a variant beats the family's own for one question. For a question in the same bucket it counts where the
family's own answer is the same: then a claim about two variants is carried over, not a variant alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opbuild.errors import OptionError
from opbuild.events import Warned
from opbuild.families.knowledge import Answer, Question, Variant
from opbuild.files.trust import PRIVATE
from opbuild.platform.digest import blake3_of
from opbuild.store.bank import Bank, Record, parse_bank, read_bank
from opbuild.store.machine_class import read_measured, system_class
from opbuild.store.shipped import shipped_bank
from opbuild.text.canonical import canonical_json

if TYPE_CHECKING:
    from opbuild.files.trust import Trust
    from opbuild.lowering.tuned import Tuned
    from opbuild.pipeline.setup import Setup


class BankKnowledge:
    """The records that count for a build.

    Args:
        records: Those of its level, machine class and number of threads.
        sources: Returns the digest of a family's sources.
        shipped: Those that the release brings, which count where the others know nothing.

    Attributes:
        stale: The records that were of use but for other sources, by question.
    """

    def __init__(
        self,
        records: Mapping[Question, Record],
        sources: Callable[[str], str],
        shipped: Mapping[Question, Record] | None = None,
    ) -> None:
        self._sources = sources
        self._shipped = {
            question: record
            for question, record in (shipped or {}).items()
            if question not in records or not self._counts(records[question])
        }
        self._exact = {**records, **self._shipped}
        self._near: defaultdict[Question, list[Record]] = defaultdict(list)
        self.stale: dict[Question, Record] = {}
        for question, record in self._exact.items():
            self._near[bucket(question)].append(record)

    def answers(self, question: Question, default: Variant | None) -> Iterator[Answer]:
        """Return what records say of a question: its own, else of those in its bucket the nearest."""
        own = self._exact.get(question)
        if own is not None:
            if self._counts(own) and own.default == default:
                yield Answer(own.choice, "" if own.choice == default else self._said(own, "tuned"))
                return
            self.stale[question] = own
        near = sorted(self._near[bucket(question)], key=lambda each: (_distance(each, question), each.arguments))
        for record in near:
            if record is not own and record.is_tuned and record.default == default and self._counts(record):
                yield Answer(record.choice, self._said(record, "bucket: tuned at other sizes"))
                return

    def digest(self) -> str:
        """Return a digest of all that decides answers."""
        parts = [[*each.place, each.sources, each.default, each.choice] for each in self._exact.values()]
        return blake3_of(canonical_json(sorted(map(canonical_json, parts))).encode())

    def _counts(self, record: Record) -> bool:
        return record.sources == self._sources(record.family)

    def _said(self, record: Record, how: str) -> str:
        is_shipped = self._shipped.get(Question(record.family, record.arguments)) is record
        return f"{'shipped bank: ' * is_shipped}{how} on {record.machine or record.system} {record.date[:10]}"


def knowledge(setup: Setup) -> BankKnowledge | None:
    """Return what tuning found for a build; None if nothing counts, as where there is no bank."""
    records, shipped = applying(_bank(setup)[0], setup), applying(_shipped(setup), setup)
    return BankKnowledge(records, family_sources, shipped) if records or shipped else None


def tuned(setup: Setup) -> Tuned | None:
    """Return what lowering asks for variants where there is a bank; None if families decide alone.

    A bank that can not be read is told, and stops nothing.
    """
    problem = _bank(setup)[1]
    if problem:
        setup.observer(Warned(f"{problem}; families choose variants by their tables"))
    found = knowledge(setup)
    if found is None:
        return None
    from opbuild.lowering.tuned import Tuned  # a network that is built starts without it

    return Tuned(found)


def applying(bank: Bank, setup: Setup) -> dict[Question, Record]:
    """Return the records of a bank for the level, the machine and the threads of a build, by question."""
    level, threads, system = setup.level.name, setup.config.num_threads, system_class()
    measured = read_measured(setup.config, setup.trust)
    machine = measured.name(level) if measured is not None else ""
    return {
        Question(each.family, each.arguments): each
        for each in bank.records
        if (each.level, each.threads) == (level, threads)
        and (each.machine == machine if machine and each.machine else each.system == system)
    }


def bucket(question: Question) -> Question:
    """Return what stands for all questions whose numbers have as many binary digits; all else of them is equal."""
    return Question(question.family, canonical_json(_rounded(_parsed(question.arguments))))


@lru_cache(maxsize=1)
def _modules() -> Any:
    from opbuild.platform.imports import Modules  # where no record counts nothing of it is needed

    return Modules()


@lru_cache(maxsize=64)
def family_sources(name: str) -> str:
    """Return the digest of the sources of a family: what it computes, how, and how it chooses."""
    modules = [f"opbuild.families.{name}.{part}" for part in ("definition", "schedule", "family")]
    return str(_modules().digest(tuple(modules)))


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
