"""The schedule of gathers: contiguous rows are copied as vectors, single elements one by one."""

from __future__ import annotations

from opbuild.backend.halide.rows import schedule

__all__ = ["schedule"]
