"""The distance of two results."""

from __future__ import annotations

import numpy as np

from opbuild.graph.types import Array


def relative_error(output: Array, reference: Array) -> float:
    """Return the greatest difference, relative to the greatest value of the reference; infinite for other shapes."""
    if output.shape != reference.shape:
        return float("inf")
    if reference.dtype.kind not in "biuf":
        return 0.0 if np.array_equal(output, reference) else float("inf")
    reference = reference.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.abs(output.astype(np.float64) - reference)
    difference[(np.isnan(output) & np.isnan(reference)) | (output == reference)] = 0
    greatest = np.max(np.abs(reference[np.isfinite(reference)]), initial=0.0)
    return float(np.max(difference, initial=0.0) / (greatest or 1.0))
