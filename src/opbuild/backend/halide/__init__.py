"""The compiler of kernels: Halide."""
