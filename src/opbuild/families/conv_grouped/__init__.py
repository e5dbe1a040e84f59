"""Kernel family ``conv_grouped``: grouped convolution of blocked values."""
