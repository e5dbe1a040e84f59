"""Calls that only move elements: strided copies, and the way into channel blocks and out of them."""

from __future__ import annotations

from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.program import View

Made = tuple[OpDesc, tuple[View, ...]]
