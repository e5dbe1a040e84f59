"""Regions of images, sampled in bins.

``x (W, H, C, N)``, ``rois (4, R)`` as x and y of two corners, ``batch (R)``, the image of each, ``scale (1)`` of the
corners, ``bins (PW, PH)``, which is not read: it has the extents of ``out (PW, PH, C, R)``. Each bin has ``samples`` by
``samples`` places, between four pixels each; one that lies outside by more than a pixel counts 0. ``mode``: ``avg``, or
``max`` of all pixels times their weights.

Schedule: the places of a region once for all its channels, regions and channels among the tasks.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import TYPES, Definition, computed, parameters, variables
from opbuild.backend.halide.rows import parallel_rows
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Return the definition of a RoiAlign."""
    inputs = parameters(desc)
    x, rois, batch, scale, bins = inputs
    i, j, c, r = variables("i j c r")
    kind, samples = TYPES[desc.outputs[0].dtype], int(desc.attrs["samples"])
    functions: dict[str, Any] = {}
    for axis, name in enumerate("xy"):
        corners = (rois[axis, r] * scale[0], rois[axis + 2, r] * scale[0])
        functions[name] = _places(desc, name, corners, (x.dim(axis).extent(), bins.dim(axis).extent()), kind)
    image = hl.unsafe_promise_clamped(
        hl.cast(hl.Int(32), hl.clamp(batch[r], hl.i64(0), hl.cast(hl.Int(64), x.dim(3).extent() - 1))),
        0,
        x.dim(3).extent() - 1,
    )
    domain = hl.RDom([(0, samples), (0, samples)], "samples")
    across, down = functions["x"][i * samples + domain[0], r], functions["y"][j * samples + domain[1], r]
    terms = []
    for v in (0, 1):
        for u in (0, 1):
            columns, rows = (
                hl.unsafe_promise_clamped(each[t], 0, x.dim(axis).extent() - 1)
                for axis, (each, t) in enumerate(((across, u), (down, v)))
            )
            terms.append(across[2 + u] * down[2 + v] * x[columns, rows, c, image])
    found, index = hl.Func("found"), (i, j, c, r)
    if desc.attrs["mode"] == "max":
        best = hl.max(hl.max(terms[0], terms[1]), hl.max(terms[2], terms[3]))
        found[index] = kind.min()
        found[index] = hl.max(hl.Expr(found[index]), best)
        value = found[index]
    else:
        found[index] = hl.cast(kind, 0)
        found[index] = hl.Expr(found[index]) + (terms[0] + terms[1] + terms[2] + terms[3])
        value = found[index] * hl.cast(kind, 1 / samples**2)
    return computed(desc, inputs, index, value, {**functions, "found": found})


def _places(desc: OpDesc, name: str, corners: tuple[Any, Any], extents: tuple[Any, Any], kind: Any) -> Any:
    """Return the two pixels, and their weights, of each sample along an axis of a region."""
    s, r = hl.Var("s"), hl.Var("r")
    samples, half = int(desc.attrs["samples"]), hl.cast(kind, 0.5)
    size, one = hl.cast(kind, extents[0]), hl.cast(kind, 1)
    start, end = (corner - half if desc.attrs["half_pixel"] else corner for corner in corners)
    length = end - start if desc.attrs["half_pixel"] else hl.max(end - start, one)
    step = length / hl.cast(kind, extents[1])
    inside = (hl.cast(kind, s % samples) + half) * step / hl.cast(kind, samples)
    place = start + hl.cast(kind, s // samples) * step + inside
    counts = hl.select((place < -one) | (place > size), hl.cast(kind, 0), one)
    limited = hl.max(hl.min(place, size - one), hl.cast(kind, 0))
    low = hl.cast(hl.Int(32), limited)
    part = limited - hl.cast(kind, low)
    places = hl.Func(f"places_{name}")
    places[s, r] = hl.Tuple([low, hl.min(low + 1, extents[0] - 1), (one - part) * counts, part * counts])
    return places


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a RoiAlign."""
    (out,) = definition.outputs
    i, *_, r = definition.variables.values()
    parallel_rows(out, 2, definition.tasks)
    for name in "xy":
        definition.functions[name].compute_at(out, r)
    found = definition.functions["found"]
    found.compute_at(out, i)
