"""Kernel family ``grid_sample``: images at places that a grid names."""
