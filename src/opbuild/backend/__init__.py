"""The compilers."""
