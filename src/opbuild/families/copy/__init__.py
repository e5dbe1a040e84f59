"""Kernel family ``copy``: elements moved between strided places."""
