"""The layout of packed trees, which the front end and the family's record, definition and schedule share."""

BITS = 32
"""Leaves of a piece: one bit each."""

GROUP = 16
"""Trees of one depth in ``depths``, the greatest that one of them has: they are walked down side by side."""

LEAF = {"float32": 0x7F800002, "float64": 0x7FF0000000000002}
"""Where the keys begin that stand for leaves in records, by the element type of the rows; above all others."""

BELOW = {"float32": -(2**31), "float64": -(2**63)}
"""The key of a split that no number is at most, and of NaN where that goes left; below all others."""

MOST = {"float32": (2 - 2**-23) * 2.0**127, "float64": (2 - 2**-52) * 2.0**1023}
"""The greatest finite number of an element type, which says that a leaf has no weight where the least one is chosen."""
