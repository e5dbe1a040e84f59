"""Lowering with what tuning found: a family's answer gives way to the one that a bank remembers for the same question.

Only what the family itself names a candidate for these very extents is taken, so whatever a bank holds, each call stays
legal; what it can not do is make a network wrong. The variant that was taken is in the kernel's key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from opbuild.families.catalogue import find, names
from opbuild.families.family import Family, Variant
from opbuild.families.knowledge import Answer, Knowledge, Question
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.available import Call, Kernels
from opbuild.program import Program, View
from opbuild.text.canonical import canonical_json

V = TypeVar("V")


@dataclass
class Asked:
    """A question that lowering asked.

    Attributes:
        sites: The nodes for which it was asked.
        default: The family's own answer.
        answer: What was taken.
        candidates: All that may be answered.
        said: Where the answer is from; empty: from the family's table.
    """

    sites: set[str]
    default: Variant | None
    answer: Variant | None
    candidates: tuple[Variant | None, ...]
    said: str = ""


@dataclass
class Tuned(Kernels):
    """Stands for kernels of every variant, of which a bank may choose.

    Attributes:
        knowledge: The bank.
        asked: The questions of families that can be tuned, in order.
    """

    knowledge: Knowledge
    asked: dict[Question, Asked] = field(default_factory=dict)

    def has(self, desc: OpDesc) -> bool:
        """Return that there is this kernel, so that rules ask for the fastest algorithm."""
        return True

    def serve(self, desc: OpDesc, views: tuple[View, ...]) -> Call | None:
        """Return the very call."""
        return desc, views

    def choose(self, site: tuple[str, ...], function: Callable[..., V], arguments: tuple[Any, ...]) -> V:
        """Return the bank's answer if it has one that the family names a candidate, else the family's own."""
        family = _family(function)
        if family is None or family.candidates is None:
            return function(*arguments)
        question = Question(family.name, canonical_json(arguments[:-1]))
        if question not in self.asked:
            self.asked[question] = self._ask(question, function, family.candidates(*arguments), arguments)
        found = self.asked[question]
        found.sites.update(site)
        return found.answer  # type: ignore[return-value]  # V is what this family answers

    def notes(self) -> dict[str, str]:
        """Return where the answers are from that are not the family's own, by node."""
        return {
            site: f"{question.family} {found.said}"
            for question, found in self.asked.items()
            if found.said
            for site in sorted(found.sites)
        }

    def _ask(
        self,
        question: Question,
        function: Callable[..., Any],
        candidates: Iterable[Variant | None],
        arguments: tuple[Any, ...],
    ) -> Asked:
        default, legal = function(*arguments), tuple(candidates)
        for variant, said in self.knowledge.answers(question, default):
            if variant in legal:
                return Asked(set(), default, legal[legal.index(variant)], legal, said)
        return Asked(set(), default, default, legal)


class Chosen:
    """Answers that were decided."""

    def __init__(self, choices: Mapping[Question, Variant | None]) -> None:
        self._choices = choices

    def answers(self, question: Question, default: Variant | None) -> Iterator[Answer]:
        """Return the answer that was decided, if one was."""
        if question in self._choices:
            yield Answer(self._choices[question], "")


def kernels_of(program: Program, asked: Mapping[Question, Asked], question: Question) -> list[OpDesc]:
    """Return the kernels of a question's family for the nodes for which it was asked; none if it was not."""
    sites = asked[question].sites if question in asked else set[str]()
    kernels = program.descriptors().items()
    return [desc for desc, nodes in kernels if desc.family == question.family and not sites.isdisjoint(nodes)]


def _family(function: Callable[..., Any]) -> Family | None:
    """Return the family whose ``choose`` a function is; None if it is none's."""
    name = function.__module__.removeprefix("opbuild.families.").removesuffix(".family")
    family = find(name) if name in names() else None
    return family if family is not None and family.choose is function else None
