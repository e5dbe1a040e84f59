"""Lowering with tuning records: a family's answer gives way to a recorded one for the same query.

Only what the family itself names a candidate for these very extents is taken, so whatever a database holds, each call
stays legal; what it cannot do is make a network wrong. The variant that was taken is in the kernel's key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from opbuild.families.family import Family, TunedVariant, TuningQuery, TuningSource, Variant
from opbuild.kernel.networks import Answered
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Chooser
from opbuild.platform.locks import lazy_property
from opbuild.platform.records import dataclass, field
from opbuild.program import Program
from opbuild.text.canonical import canonical_json


@dataclass
class LoweringQuery:
    """A query of lowering.

    Attributes:
        sites: The nodes for which it was asked.
        default: The family's own answer.
        answer: What was taken.
        name_candidates: Returns all that may be answered.
        origin: Where the answer is from; empty: from the family's table.
        is_shipped: Whether it is from the release's database.
        passed: What the database answered before, and was not taken.
    """

    sites: set[str]
    default: Variant | None
    answer: Variant | None
    name_candidates: Callable[[], Iterable[Variant | None]]
    origin: str = ""
    is_shipped: bool = False
    passed: list[tuple[Variant | None, bool]] = field(default_factory=list)

    @lazy_property
    def candidates(self) -> tuple[Variant | None, ...]:
        """All that may be answered; where no database says anything nobody asks."""
        return tuple(self.name_candidates())


class NoTuning(TuningSource):
    """The source of records where there is no tuning database."""

    def answers(self, query: TuningQuery, default: Variant | None) -> Iterable[TunedVariant]:
        """Return nothing."""
        return ()


@dataclass
class Tuned(Chooser):
    """Lets a database choose among the variants that families name.

    Attributes:
        source: The database.
        withheld: Queries with answers that are not taken from the release's database.
        queries: Those of families that can be tuned, in order.
    """

    source: TuningSource
    withheld: Collection[tuple[TuningQuery, Variant | None]] = ()
    queries: dict[TuningQuery, LoweringQuery] = field(default_factory=dict)

    def choose(self, site: tuple[str, ...], family: Family, arguments: tuple[Any, ...]) -> Variant | None:
        """Return the database's answer if it has one that the family names a candidate, else the family's own."""
        if family.candidates is None:
            return family.choose(*arguments)
        query = TuningQuery(family.name, canonical_json(arguments[:-1]))
        if query not in self.queries:
            self.queries[query] = self._query(query, family, arguments)
        found = self.queries[query]
        found.sites.update(site)
        return found.answer

    def answers(self) -> tuple[Answered, ...]:
        """Return all queries with their answers."""
        return tuple(
            Answered(*query, found.default, found.answer, found.passed) for query, found in self.queries.items()
        )

    def notes(self) -> dict[str, str]:
        """Return the sources of the answers that are not the family's own, by node."""
        return {
            site: f"{query.family} {found.origin}"
            for query, found in self.queries.items()
            if found.origin
            for site in sorted(found.sites)
        }

    def _query(self, query: TuningQuery, family: Family, arguments: tuple[Any, ...]) -> LoweringQuery:
        default = family.choose(*arguments)
        found = LoweringQuery(
            set(), default, default, lambda: family.candidates(*arguments) if family.candidates else ()
        )
        for variant, origin, is_shipped in self.source.answers(query, default):
            legal = found.candidates
            if variant in legal and not (is_shipped and (query, variant) in self.withheld):
                found.answer, found.origin, found.is_shipped = legal[legal.index(variant)], origin, is_shipped
                break
            found.passed.append((variant, is_shipped))
        return found


class FixedAnswers:
    """Answers that were decided."""

    def __init__(self, choices: Mapping[TuningQuery, Variant | None]) -> None:
        self._choices = choices

    def answers(self, query: TuningQuery, default: Variant | None) -> Iterator[TunedVariant]:
        """Return the answer that was decided, if one was."""
        if query in self._choices:
            yield TunedVariant(self._choices[query], "")


def kernels_of(program: Program, queries: Mapping[TuningQuery, LoweringQuery], query: TuningQuery) -> list[OpDesc]:
    """Return the kernels of a query's family for the nodes for which it was asked; none if it was not."""
    sites = queries[query].sites if query in queries else set[str]()
    kernels = program.descriptors().items()
    return [desc for desc, nodes in kernels if desc.family == query.family and not sites.isdisjoint(nodes)]
