"""Constants that record, definition and schedule of the family share."""

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""Neighbours in each dimension by the mode."""
