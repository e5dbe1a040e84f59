"""Kernel family ``scan``: running sums and products."""
