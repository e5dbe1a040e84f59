"""Whole definitions of users."""

from __future__ import annotations

from opbuild.families.family import Family, Variant


def choose() -> Variant:
    """Return the only variant: how it runs is the user's to say."""
    return {}


FAMILY = Family("user", choose, attributes=("function", "schedule", "arguments"))
