"""The layouts of a product's packed right operand, as the record, the definition and the schedule know them."""

from __future__ import annotations

from opbuild.kernel.opdesc import OpDesc

PANEL = 32
"""Columns in a panel of packed weights."""

PACKED = ("panels", "pairs")
"""Layouts of packed weights."""

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
