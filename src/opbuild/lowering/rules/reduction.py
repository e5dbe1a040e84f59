"""Lowering rules, registered when imported."""
