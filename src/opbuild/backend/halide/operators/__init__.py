"""Definitions (what) and schedules (how) of the operator families."""
