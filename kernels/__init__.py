"""What the pack of kernels is made from, and how: ``make kernels``."""
