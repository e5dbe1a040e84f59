"""Kernel families, a folder each: the record for lowering and the builder, the algorithm, and the schedule.

``family.py`` is the record, which knows no compiler. ``definition.py`` (what) and ``schedule.py`` (how) are Halide's;
only the compile server loads them. This file and those of the folders stay empty: they are in the key of every kernel.
"""
