"""Kernel family ``attention``: products of queries and keys, softmax, and products with values, at once."""
