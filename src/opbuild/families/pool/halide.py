"""Max and average pooling of blocked values.

``x (16, W, H, C1)``, ``out (16, OW, OH, C1)``. How a window meets the edge is ``attrs["edge"]``:

* ``none``: every window lies inside the input.
* ``clamp``: coordinates are clamped; with neighbouring taps the tap at the edge is in the window anyway, so a maximum
  is right.
* ``select``: taps outside are left out.

Bytes have maxima only. A NaN in a window gives NaN, as numpy has it (ONNX Runtime depends on the order of elements
there).
In the mode ``high_precision`` an average is added up in float64.

All taps are unrolled in the definition; a vector is the 16 lanes of one position.
"""

from __future__ import annotations

from functools import reduce
from operator import add, or_
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import TYPES, Definition, computed, parameter, variables
from opbuild.backend.halide.division import divide_plane
from opbuild.backend.halide.mathematics import FLOAT32, FLOAT64
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Define it by ``kind`` (max, average), ``kernel``, ``stride``, ``dilation``, ``before``, ``after`` and ``edge``.

    ``after`` is the padding that an average counts, -1 where none (left and top included) counts.
    """
    x = parameter(desc.inputs[0])
    lane, ox, oy, block = variables("lane ox oy block")
    taps = [_taps(desc, x, axis, position) for axis, position in ((0, ox), (1, oy))]
    average = desc.attrs["kind"] == "average"
    kind = TYPES[desc.inputs[0].dtype]
    fill = hl.f32(0.0 if average else float("-inf")) if kind.is_float() else kind.min()
    values = []
    for cy, in_y in taps[1]:
        for cx, in_x in taps[0]:
            value = x[lane, cx, cy, block]
            inside = in_x if in_y is None else in_y if in_x is None else in_x & in_y
            values.append(value if inside is None else hl.select(inside, value, fill))
    if average:
        wide = FLOAT64 if desc.is_precise else FLOAT32
        total = reduce(add, [hl.cast(wide, value) for value in values])
        count = hl.cast(wide, _count(desc, x, 0, ox) * _count(desc, x, 1, oy))
        value = hl.cast(FLOAT32, total / count)
    else:
        value = _maximum(values) if kind.is_float() else reduce(hl.max, values)
    return computed(desc, [x], (lane, ox, oy, block), value)


def _taps(desc: OpDesc, x: Any, axis: int, position: Any) -> list[tuple[Any, Any]]:
    """Return each tap's coordinate and the condition that it is inside, None where it always is."""
    kernel, stride, dilation, before = (desc.attrs[n][axis] for n in ("kernel", "stride", "dilation", "before"))
    edge = desc.attrs["edge"]
    last = x.dim(axis + 1).extent() - 1
    taps: list[tuple[Any, Any]] = []
    for tap in range(kernel):
        coordinate = position * stride + (tap * dilation - before)
        inside = (coordinate >= 0) & (coordinate <= last) if edge == "select" else None
        taps.append((coordinate if edge == "none" else hl.clamp(coordinate, 0, last), inside))
    return taps


def _maximum(values: list[Any]) -> Any:
    """Return the greatest value, NaN if any is NaN (``hl.max`` drops a NaN)."""
    unordered = reduce(or_, [hl.is_nan(value) for value in values])
    return hl.select(unordered, hl.f32(float("nan")), reduce(hl.max, values))


def _count(desc: OpDesc, x: Any, axis: int, position: Any) -> Any:
    """Return the number of taps in one direction that an average counts."""
    kernel, stride, dilation, before = (desc.attrs[n][axis] for n in ("kernel", "stride", "dilation", "before"))
    after = desc.attrs["after"][axis]
    if desc.attrs["edge"] == "none":
        return hl.f32(float(kernel))
    extent = x.dim(axis + 1).extent()
    low, high = (0, extent) if after < 0 else (-before, extent + after)
    counted: Any = None
    for tap in range(kernel):
        coordinate = position * stride + (tap * dilation - before)
        one = hl.select((coordinate >= low) & (coordinate < high), 1, 0)
        counted = one if counted is None else counted + one
    return hl.cast(hl.Float(32), counted)


def schedule(definition: Definition, _desc: OpDesc, _machine: Machine) -> None:
    """Schedule a pool, divided as convolutions are."""
    out, names = definition.outputs[0], definition.variables
    out.vectorize(names["lane"]).never_partition_all()
    divide_plane(out, names["oy"], names["block"], definition.tasks)
