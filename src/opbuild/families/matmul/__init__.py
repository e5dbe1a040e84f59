"""Kernel family ``matmul``: matrix products."""
