"""Tuning records as lowering asks for them: queries to families, and their answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from opbuild.platform.records import NamedTuple

Variant = dict[str, Any]


class TuningQuery(NamedTuple):
    """A query of a family's choice: one distinct call of a network, as far as its variant depends on it.

    Attributes:
        family: The family's name.
        arguments: What its ``choose`` is called with but for the machine, as canonical JSON.
    """

    family: str
    arguments: str


class TunedVariant(NamedTuple):
    """The answer of a tuning database.

    Attributes:
        variant: The variant; None: another family.
        said: Where it is from, for readers.
        is_shipped: Whether the release's bank says so.
    """

    variant: Variant | None
    said: str
    is_shipped: bool = False


class TuningSource(Protocol):
    """The results of tuning."""

    def answers(self, question: TuningQuery, default: Variant | None) -> Iterable[TunedVariant]:
        """Return the variants known to be faster than ``default``, the family's own answer, the best known first."""
