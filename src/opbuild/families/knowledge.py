"""What tuning found, as lowering asks for it: questions to families, and answers that others have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from opbuild.platform.records import NamedTuple

Variant = dict[str, Any]


class Question(NamedTuple):
    """What a family is asked: one distinct call of a network, as far as its variant depends on it.

    Attributes:
        family: The family's name.
        arguments: What its ``choose`` is called with but for the machine, as canonical JSON.
    """

    family: str
    arguments: str


class Answer(NamedTuple):
    """What a bank answers.

    Attributes:
        variant: The variant; None: another family.
        said: Where it is from, for readers.
        is_shipped: Whether the release's bank says so.
    """

    variant: Variant | None
    said: str
    is_shipped: bool = False


class Knowledge(Protocol):
    """What tuning found."""

    def answers(self, question: Question, default: Variant | None) -> Iterable[Answer]:
        """Return what is known to be faster than ``default``, the family's own answer, the best known first."""
