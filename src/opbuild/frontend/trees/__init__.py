"""Decision trees of ``ai.onnx.ml``: read, turned into one kind of comparison, and packed for kernels."""
