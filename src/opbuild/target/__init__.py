"""What code is made for: targets, the levels of CPUs, machines, and what this host is."""
