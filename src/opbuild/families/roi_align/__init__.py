"""Kernel family ``roi_align``: regions of images, sampled in bins."""
