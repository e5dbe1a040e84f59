"""Constants that record, definition and schedule of the family share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opbuild.families.blocked import BLOCK

FEW = 4
"""Input channels up to which no whole block of them is computed: those of images."""


def channels(attrs: Mapping[str, Any]) -> int:
    """Return the input channels that are computed together."""
    return FEW if attrs.get("few") else BLOCK
