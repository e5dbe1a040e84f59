"""The cache as its users see it."""
