"""Elementwise operations, and expressions of them."""
