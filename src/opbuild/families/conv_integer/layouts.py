"""Convolution of bytes: how its tiles lie, as both its record and its definition know it."""

from __future__ import annotations

PAIR = 2
"""Products of 16 bits that one instruction adds up."""


def is_flat(adjacent: int, halves: bool) -> bool:
    """Return whether tiles are of positions counted along all rows, whose inputs are copied: no row is too short.

    Args:
        adjacent: As the record's ``adjacent`` returns it.
        halves: Whether products are added up in 16 bits first.
    """
    return adjacent == PAIR or halves
