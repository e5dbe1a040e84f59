"""Kernel families, a folder each: what lowering and the builder know of one, what it computes, and how.

``family.py`` is the record, which knows no compiler. ``definition.py`` (what) and ``schedule.py`` (how) are Halide's;
only the compile server loads them. This file and those of the folders stay empty: they are in the key of every kernel.
"""
