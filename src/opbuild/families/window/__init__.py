"""Kernel family ``window``: pools of plain values over up to three dimensions."""
