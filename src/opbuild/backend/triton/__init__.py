"""The compiler of kernels for NVIDIA's GPUs: Triton, as a maker of binaries alone."""
