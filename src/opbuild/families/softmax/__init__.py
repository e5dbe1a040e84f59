"""Kernel family ``softmax``: softmax and its logarithm."""
