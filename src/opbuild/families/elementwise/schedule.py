"""How elementwise expressions run: rows as vectors; several threads for much work."""

from __future__ import annotations

from opbuild.backend.halide.rows import schedule

__all__ = ["schedule"]
