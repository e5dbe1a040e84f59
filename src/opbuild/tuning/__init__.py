"""Tuning: candidates of a network's calls, measured where they run, and the records kept of them."""
