"""A model as its file declares it, and what is remembered of it."""
