"""Kernel family ``reduce``: reductions."""
