"""The schedule of resizing: the innermost dimension as vectors; neighbours along it are gathered."""

from __future__ import annotations

from opbuild.backend.halide.rows import schedule

__all__ = ["schedule"]
