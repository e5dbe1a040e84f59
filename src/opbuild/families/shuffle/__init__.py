"""Kernel family ``shuffle``: channels of a blocked value in another order."""
