"""Kernel family ``global_pool``: pools over whole planes."""
