"""Depthwise convolution of blocked 8-bit numbers: the schedule, that of ``conv_depthwise``."""

from __future__ import annotations

from opbuild.families.conv_depthwise.schedule import schedule

__all__ = ["schedule"]
