"""Kernel family ``conv_integer``: convolution of blocked 8-bit numbers."""
