"""Kernel family ``winograd_integer``: Winograd's 3 x 3 convolution of 8-bit numbers."""
