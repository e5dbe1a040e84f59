"""Stores of built operators."""
