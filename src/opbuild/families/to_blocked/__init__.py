"""Kernel family ``to_blocked``: into channel blocks."""
