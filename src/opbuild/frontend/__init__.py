"""Networks in."""
