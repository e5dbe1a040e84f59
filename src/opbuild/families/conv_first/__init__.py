"""Kernel family ``conv_first``: convolution of a plain value with few channels."""
