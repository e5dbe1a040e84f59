"""Devices: where kernels run and buffers lie."""
