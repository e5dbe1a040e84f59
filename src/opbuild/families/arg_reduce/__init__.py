"""Kernel family ``arg_reduce``: ArgMax and ArgMin."""
