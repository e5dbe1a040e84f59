"""Kernel family ``conv_weight_gradient_depthwise``: the gradient of a depthwise convolution's weights."""
