"""Kernel family ``conv_integer_depthwise``: depthwise convolution of blocked 8-bit numbers."""
