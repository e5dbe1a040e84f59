"""Kernel family ``elementwise``: expressions, one element at a time."""
