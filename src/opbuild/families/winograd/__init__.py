"""Kernel family ``winograd``: Winograd's 3 x 3 convolution."""
