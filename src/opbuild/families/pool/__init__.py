"""Kernel family ``pool``: sliding maxima and averages."""
