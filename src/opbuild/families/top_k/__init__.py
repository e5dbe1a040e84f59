"""Kernel family ``top_k``: places of the greatest elements."""
