"""Kernel families, a folder each: the record, the algorithm with its schedule, and the lowering.

``family.py`` is the record, which knows no compiler. ``halide.py`` (what, and how) is Halide's; only the compile server
loads it. This file and those of the folders stay empty: they are in the key of every kernel.
"""
