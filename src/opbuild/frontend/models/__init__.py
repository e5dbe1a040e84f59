"""A model as its file declares it, and the memory of it."""
