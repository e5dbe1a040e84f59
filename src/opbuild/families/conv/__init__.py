"""Kernel family ``conv``: convolution of blocked values."""
