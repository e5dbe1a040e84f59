"""Kernel family ``conv_weight_gradient``: the gradient of a convolution's weights, from blocked values."""
