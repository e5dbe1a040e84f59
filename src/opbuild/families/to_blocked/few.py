"""Constants that record and definition of the family share."""

FEW = 4
"""Channels up to which bytes are brought into blocks channel by channel (3 x 224 x 224: a third of the time)."""
