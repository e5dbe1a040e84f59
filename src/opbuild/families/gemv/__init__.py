"""Kernel family ``gemv``: products of a matrix and a vector."""
