"""Passes: each takes a graph and returns a graph."""
