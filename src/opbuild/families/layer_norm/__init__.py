"""Kernel family ``layer_norm``: normalisations that look at the data."""
