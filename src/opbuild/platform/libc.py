"""The C library of this process."""

from __future__ import annotations

import ctypes
from functools import lru_cache


@lru_cache(maxsize=1)
def libc() -> ctypes.CDLL:
    """Return the C library: one, since each ``CDLL`` is part of a cycle, which stays until the collector runs."""
    return ctypes.CDLL(None, use_errno=True)
