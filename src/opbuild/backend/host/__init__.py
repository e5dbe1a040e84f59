"""Operators that no kernel serves, run by numpy."""
