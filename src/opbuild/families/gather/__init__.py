"""Kernel family ``gather``: elements at places that another tensor names."""
