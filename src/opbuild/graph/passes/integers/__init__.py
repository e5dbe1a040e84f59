"""Operators on quantised numbers, and patterns of them, rewritten for kernels on integers.

``registry`` is what the other modules add rewrites to: ``products`` those of matrix products, ``convolutions`` those
of what slides over images, ``requantization`` those of what is quantised again, which keeps bytes through what only
moves them, and of operators that compute one element at a time.
"""
