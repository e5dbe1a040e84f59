"""Consecutive numbers whose bounds are open: the part of a table that is long enough for any size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.graph.extents import SymbolicExtent, example_value
from opbuild.graph.types import Array

TABLE, LONGEST = 4096, 2**18
"""Elements, at least and at most, of the table of consecutive numbers of which a Range of open bounds is a part."""


def table_slice(bounds: Sequence[Any], dtype: str) -> Array | None:
    """Return a table of consecutive numbers of which a Range is a Slice by the same numbers; None if it is of none."""
    start, limit, delta = bounds
    if not np.issubdtype(np.dtype(dtype), np.integer) or isinstance(delta, SymbolicExtent) or delta <= 0 or start < 0:
        return None
    count = max(TABLE, 1 << (4 * example_value(limit)).bit_length())
    fits = count <= min(LONGEST, int(np.iinfo(dtype).max)) and limit <= count
    return np.arange(count, dtype=dtype) if fits else None
