"""Locks, without loading ``threading``: a start that begins no thread does not need it."""

from __future__ import annotations

from _thread import RLock
from _thread import _local as local
from _thread import allocate_lock as Lock  # noqa: N812  as threading has it

__all__ = ["Lock", "RLock", "local"]
