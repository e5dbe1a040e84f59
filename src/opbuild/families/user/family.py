"""Whole definitions of users."""

from __future__ import annotations

from opbuild.families.family import Family

FAMILY = Family("user", choose=dict, attributes=("domain", "function", "schedule", "arguments"))
