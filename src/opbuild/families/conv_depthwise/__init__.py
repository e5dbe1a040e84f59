"""Kernel family ``conv_depthwise``: depthwise convolution of blocked values."""
