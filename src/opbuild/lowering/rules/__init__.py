"""Lowering of operators that no family computes: what is only seen otherwise, and what becomes something else.

The others are with the families that compute them, in ``families/*/lowering.py``.
"""
