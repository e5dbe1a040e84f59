"""Passes: each takes a graph and returns a graph."""

from opbuild.graph.passes.pipeline import optimize

__all__ = ["optimize"]
