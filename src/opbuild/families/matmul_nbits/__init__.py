"""Kernel family ``matmul_nbits``: products of float32 and weights of few bits in blocks of one scale."""
