"""Lowering of operators that no family computes: mere views, and operators that become others.

The others are with the families that compute them, in ``families/*/lowering.py``.
"""
