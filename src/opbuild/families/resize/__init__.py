"""Kernel family ``resize``: weighted neighbours along one axis."""
