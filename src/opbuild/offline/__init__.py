"""Offline models: a network built into one file."""
