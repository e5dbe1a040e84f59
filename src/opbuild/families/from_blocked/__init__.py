"""Kernel family ``from_blocked``: out of channel blocks."""
