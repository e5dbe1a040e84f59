"""The host's CPU: objects become one shared library, whose kernels are called with Halide's buffers."""
