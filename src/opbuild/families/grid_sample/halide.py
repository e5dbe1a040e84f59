"""Images interpolated at places that a grid names.

``x (W, H, [D], C, N)``, ``grid (rank, places, N)`` from -1 to 1, the innermost dimension's first, ``out (places, C,
N)``. Each dimension has its neighbours and their weights; what is read is their product. With ``padding`` ``zeros`` a
neighbour outside counts nothing. With ``border`` it is the one at the border, to which the place itself is moved, too;
cubic curves go on beyond it. With ``reflection`` each neighbour is the one that it mirrors; of nearest ones the place
is mirrored, and rounded then.

Schedule: for ``lanes`` places the neighbours and weights once, then all channels.

Variant: ``lanes``. Limits: ``lanes`` <= places.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import TYPES, Definition, computed, parameters, variables
from opbuild.backend.halide.rows import divide_loops
from opbuild.families.layouts import TAPS
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

_CUBIC = -0.75
"""The coefficient of the cubic interpolation."""


def define(desc: OpDesc) -> Definition:
    """Return the definition of a GridSample."""
    x, grid = parameters(desc)
    p, c, n, axis = variables("p c n axis")
    rank, kind = int(desc.attrs["rank"]), TYPES[desc.outputs[0].dtype]
    count = TAPS[desc.attrs["mode"]]
    index, weight = hl.Func("index"), hl.Func("weight")
    taps = [[_tap(desc, grid[a, p, n], x.dim(a).extent(), kind, t) for t in range(count)] for a in range(rank)]
    flat = [each for own in taps for each in own]
    index[p, axis, n] = hl.mux(axis, [place for place, _ in flat])
    weight[p, axis, n] = hl.mux(axis, [factor for _, factor in flat])
    total = hl.cast(kind, 0)
    for chosen in product(range(count), repeat=rank):
        places = [hl.unsafe_promise_clamped(index[p, a * count + t, n], 0, x.dim(a).extent() - 1)
                  for a, t in enumerate(chosen)]  # fmt: skip
        factor = hl.cast(kind, 1)
        for a, t in reversed(list(enumerate(chosen))):
            factor = factor * weight[p, a * count + t, n]
        total = total + factor * x[(*places, c, n)]
    functions = {"index": index, "weight": weight}
    return computed(desc, [x, grid], (p, c, n), total, functions)


def _tap(desc: OpDesc, place: Any, extent: Any, kind: Any, number: int) -> tuple[Any, Any]:
    """Return the pixel of one neighbour, and its weight."""
    size = hl.cast(kind, extent)
    one, half = hl.cast(kind, 1), hl.cast(kind, 0.5)
    place = (place + one) * half * (size - one) if desc.attrs["aligned"] else ((place + one) * size - one) * half
    if desc.attrs["padding"] == "border" and desc.attrs["mode"] != "cubic":
        place = hl.max(hl.min(place, size - one), hl.cast(kind, 0))
    if desc.attrs["mode"] == "nearest":
        place = _mirrored(desc, place, size, kind) if desc.attrs["padding"] == "reflection" else place
        neighbour, weight = hl.round(place), one
    else:
        low = hl.floor(place)
        part = place - low
        if desc.attrs["mode"] == "linear":
            neighbour, weight = low + hl.cast(kind, number), (part if number else one - part)
        else:
            neighbour, weight = low + hl.cast(kind, number - 1), _cubic(hl.abs(part - hl.cast(kind, number - 1)), kind)
    return _placed(desc, neighbour, weight, size, kind)


def _placed(desc: OpDesc, place: Any, weight: Any, size: Any, kind: Any) -> tuple[Any, Any]:
    zero, last = hl.cast(kind, 0), size - hl.cast(kind, 1)
    if desc.attrs["padding"] == "reflection":
        place = _mirrored(desc, place, size, kind)
    elif desc.attrs["padding"] == "zeros":
        weight = hl.select((place < zero) | (place > last), zero, weight)
    return hl.cast(hl.Int(32), hl.max(hl.min(place, last), zero)), weight


def _mirrored(desc: OpDesc, place: Any, size: Any, kind: Any) -> Any:
    """Return a place mirrored at the outermost pixels' centres, or at their outer edges where corners do not align."""
    low, one, two = hl.cast(kind, 0 if desc.attrs["aligned"] else -0.5), hl.cast(kind, 1), hl.cast(kind, 2)
    span = hl.max(size - one, one) if desc.attrs["aligned"] else size
    along = hl.abs(place - low)
    turns = hl.floor(along / span)
    rest = along - turns * span
    is_odd = turns - two * hl.floor(turns / two) > hl.cast(kind, 0)
    return hl.select(is_odd, span - rest, rest) + low


def _cubic(distance: Any, kind: Any) -> Any:
    """Return the weight of a neighbour at a distance of less than 2."""
    a = hl.cast(kind, _CUBIC)
    near = ((a + hl.cast(kind, 2)) * distance - (a + hl.cast(kind, 3))) * distance * distance + hl.cast(kind, 1)
    far = ((distance - hl.cast(kind, 5)) * distance + hl.cast(kind, 8)) * distance - hl.cast(kind, 4)
    return hl.select(distance <= hl.cast(kind, 1), near, a * far)


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a GridSample."""
    (out,), lanes = definition.outputs, int(desc.variant["lanes"])
    p, c, n = definition.variables.values()
    po, pi = hl.Var("po"), hl.Var("pi")
    out.split(p, po, pi, lanes, hl.TailStrategy.ShiftInwards).reorder(pi, c, po, n).vectorize(pi)
    buffer = out.output_buffer()
    strips = (buffer.dim(0).extent() + lanes - 1) // lanes
    divide_loops(out, [(po, strips, 1), (n, buffer.dim(2).extent(), 1)], definition.tasks)
    neighbours = int(desc.attrs["rank"]) * TAPS[desc.attrs["mode"]]
    for function in definition.functions.values():
        place, axis, _ = function.args()
        function.compute_at(out, po).bound(axis, 0, neighbours).bound_extent(place, lanes)
        function.reorder(place, axis).vectorize(place).unroll(axis)
