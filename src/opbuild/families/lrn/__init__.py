"""Kernel family ``lrn``: local response normalization."""
