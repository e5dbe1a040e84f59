"""Kernel family ``user``: whole definitions of users."""
