"""Targets of code: the levels of CPUs, other devices, machines, and this host."""
