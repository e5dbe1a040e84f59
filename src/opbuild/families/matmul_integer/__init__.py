"""Kernel family ``matmul_integer``: products of matrices of bytes, with their sums in int32."""
