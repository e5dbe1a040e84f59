"""Answers: the queries that lowering asked families for a network, and the variants taken, perhaps of tuning.

What a family is asked next may depend on what it answered before, and on nothing else. So a build that would answer
each question of a network as it was answered then, would come to the same kernels: by that a stored network is found
without lowering, and its name has of tuning what differs from the families' own answers, nothing of who found it where.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from opbuild.platform.digest import blake3_of
from opbuild.platform.records import NamedTuple
from opbuild.text.canonical import canonical_json


class Answered(NamedTuple):
    """A question of lowering, and its answer.

    Attributes:
        family: The family's name.
        arguments: What it was asked with, as canonical JSON.
        default: The family's own answer.
        choice: What was taken.
        passed: What records said before, and was not taken: variants that the family does not name, or whose kernels
            the release lacks; each with whether the release's bank said so.
    """

    family: str
    arguments: str
    default: dict[str, Any] | None
    choice: dict[str, Any] | None
    passed: Sequence[tuple[dict[str, Any] | None, bool]] = ()


Answers = Sequence[Answered]
"""All of a network, in the order in which they were asked."""


def digest_of(answers: Answers) -> str:
    """Return a digest of the answers that are not the families' own; empty if all are."""
    chosen = sorted(canonical_json([each.family, each.arguments, each.choice]) for each in answers if _is_tuned(each))
    return blake3_of(canonical_json(chosen).encode()) if chosen else ""


def answers_to_json(answers: Answers) -> list[Any]:
    """Return answers as JSON values; of most there is nothing but the family's own."""
    return [
        [each.family, each.arguments, each.default, *([each.choice, list(map(list, each.passed))] * _is_told(each))]
        for each in answers
    ]


def answers_from_json(parts: Any) -> tuple[Answered, ...]:
    """Return the answers that ``answers_to_json`` wrote.

    Raises:
        ValueError: If it is something else; or ``TypeError``, ``LookupError``.
    """
    return tuple(_answered(*each) for each in parts)


def with_answers(known: Iterable[Answers], answers: Answers, most: int) -> list[Answers]:
    """Return the answers that are known, the newest last; of those to one effect one."""
    digest = digest_of(answers)
    return [*(each for each in known if digest_of(each) != digest), answers][-most:]


def _answered(family: str, arguments: str, default: Any, choice: Any = ..., passed: Any = ()) -> Answered:
    choice = default if choice is ... else choice
    variants = (default, choice, *(variant for variant, _ in passed))
    if not all(isinstance(each, (dict, type(None))) for each in variants) or not isinstance(arguments, str):
        raise ValueError("these are no answers")
    return Answered(str(family), arguments, default, choice, [(variant, bool(shipped)) for variant, shipped in passed])


def _is_tuned(each: Answered) -> bool:
    return each.choice != each.default


def _is_told(each: Answered) -> bool:
    return _is_tuned(each) or bool(each.passed)
