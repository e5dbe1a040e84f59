"""NVIDIA's GPUs: their driver, kernels that Triton made, memory, and calls that are replayed as one graph."""
