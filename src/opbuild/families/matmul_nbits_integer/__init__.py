"""Kernel family ``matmul_nbits_integer``: products of weights of few bits and activations that become int8."""
