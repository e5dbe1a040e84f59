"""Tuning: candidates of a network's calls, measured where they run, and what is kept of them."""
