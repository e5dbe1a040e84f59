"""Operators that several simpler ones compute, by kind: ``REWRITES`` of each module has them by operator type."""
