"""Kernel family ``weight_blocks``: weights that are known only at run time, into the blocks that convolutions read."""
