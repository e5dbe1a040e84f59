"""Kernel family ``scatter``: elements written at places that another tensor names."""
