"""resize: one axis resampled by tables of neighbours and their weights.

Schedule: the innermost dimension as vectors; neighbours along it are gathered.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, computed, output_indices, parameters
from opbuild.backend.halide.rows import schedule
from opbuild.kernel.opdesc import OpDesc

__all__ = ["define", "schedule"]


def define(desc: OpDesc) -> Definition:
    """Define ``out[i, k, o] = sum over t of weights[t, k] * x[i, places[t, k], o]`` for ``attrs["taps"]`` neighbours.

    Dimensions are innermost first: x (inner, axis, outer), places and weights (taps, k). Without inner dimension (all
    operands of rank 2) the axis is the innermost one.
    """
    x, places, weights = parameters(desc)
    index = output_indices(desc)
    *inner, place, outer = index
    extent = x.dim(len(inner)).extent()
    total = None
    for tap in range(int(desc.attrs["taps"])):
        chosen = hl.unsafe_promise_clamped(hl.max(hl.min(places[tap, place], extent - 1), 0), 0, extent - 1)
        term = weights[tap, place] * x[[*inner, chosen, outer]]
        total = term if total is None else total + term
    return computed(desc, [x, places, weights], index, hl.strict_float(total))
