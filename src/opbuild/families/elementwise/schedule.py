"""The schedule of elementwise expressions: rows as vectors, the outermost loops divided among the tasks."""

from __future__ import annotations

from opbuild.backend.halide.rows import schedule

__all__ = ["schedule"]
