"""Layouts, limits and tables that the records, the Halide files and the lowerings of families share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opbuild.families.blocked import BLOCK
from opbuild.kernel.opdesc import OpDesc

PAIR = 2
"""Products of 16 bits that one instruction adds up."""

FEW_BYTES = 4
"""Channels up to which bytes are brought into blocks channel by channel (3 x 224 x 224: a third of the time)."""

FEW_INPUTS = 4
"""Input channels up to which no whole block of them is computed: those of images."""

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""Neighbours in each dimension by the mode of sampling by a grid."""

TRANSFORMS: dict[int, tuple[tuple[float, float, float], ...]] = {
    2: ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    4: (
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
}
"""Winograd's matrix G, which transforms weights, by the tile's extent m."""

PANEL = 32
"""Columns in a panel of a product's packed right operand."""

PACKED = ("panels", "pairs")
"""Layouts of such operands."""

LEAST_FETCHED = 20
"""Rows that must pass by panels for the next ones to be fetched meanwhile: fewer leave no time for it."""


def words(dtype: str) -> int:
    """Return the lanes of float32 that an element takes as it is added up."""
    return 2 if dtype == "float64" else 1


def registers(rows: int, vectors: int, *, is_either: bool = False) -> int:
    """Return the registers that a tile takes: its sums, a row of the right operand, one element of the left one.

    With ``is_either`` that, or elements of all rows and one vector of the right operand if these are fewer.
    """
    return rows * vectors + (min(rows, vectors) if is_either else vectors) + 1


def fetches(desc: OpDesc) -> bool:
    """Return whether a product fetches panels ahead: where tiles of several rows take whole ones as they lie."""
    whole = desc.attrs["rhs"] == "panels" and not desc.variant.get("stage") and desc.variant["columns"] % PANEL == 0
    return whole and desc.variant["rows"] > 1 and not desc.is_precise


def is_flat(adjacent: int, halves: bool) -> bool:
    """Return whether tiles are of positions counted along all rows, whose inputs are copied: no row is too short.

    Args:
        adjacent: As the record's ``adjacent`` returns it.
        halves: Whether products are added up in 16 bits first.
    """
    return adjacent == PAIR or halves


def inputs_at_once(attrs: Mapping[str, Any]) -> int:
    """Return the input channels that are computed together."""
    return FEW_INPUTS if attrs.get("few") else BLOCK
