"""gather: elements of one tensor at places that another one names.

Schedule: contiguous rows are copied as vectors, single elements one by one.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, computed, output_indices, parameters
from opbuild.backend.halide.rows import schedule
from opbuild.kernel.opdesc import OpDesc

__all__ = ["define", "schedule"]


def define(desc: OpDesc) -> Definition:
    """Define the reading of ``x`` at ``indices``; operands' dimensions are innermost first.

    ``attrs["kind"]`` is one of:

    * ``rows``: ``out[i, k, o] = x[i, indices[k], o]``; x is (inner, axis, outer), indices (k).
    * ``elements``: ``out[p] = x[p with p[axis] = indices[p]]``; all of one rank, ``attrs["axis"]`` counts from the
      innermost.
    * ``nd``: ``out[i, k, b] = x[i, indices[m-1, k, b], ..., indices[0, k, b], b]``; x is (inner, m axes innermost
      first, batch), indices (m, k, batch).

    A negative index counts from the end. One that is out of range reads the nearest element: nothing outside ``x`` is
    touched.
    """
    x, indices = parameters(desc)
    index = output_indices(desc)
    return computed(desc, [x, indices], index, x[_place(desc, x, indices, index)])


def _place(desc: OpDesc, x: Any, indices: Any, index: list[Any]) -> list[Any]:
    kind = desc.attrs["kind"]
    if kind == "rows":
        inner, place, outer = index
        return [inner, _inside(indices[place], x.dim(1).extent()), outer]
    if kind == "elements":
        axis = int(desc.attrs["axis"])
        chosen = _inside(indices[index], x.dim(axis).extent())
        return [*index[:axis], chosen, *index[axis + 1 :]]
    inner, place, batch = index
    count = len(desc.inputs[0].dims) - 2
    chosen = [_inside(indices[count - 1 - d, place, batch], x.dim(1 + d).extent()) for d in range(count)]
    return [inner, *chosen, batch]


def _inside(index: Any, extent: Any) -> Any:
    # In the index's own type if that is the wider one: an int64 far outside must not become a valid int32.
    kind = index.type() if index.type().bits() == 64 else hl.Int(32)
    index, count = hl.cast(kind, index), hl.cast(kind, extent)
    wrapped = hl.select(index < hl.cast(kind, 0), index + count, index)
    limited = hl.max(hl.min(wrapped, count - hl.cast(kind, 1)), hl.cast(kind, 0))
    return hl.unsafe_promise_clamped(hl.cast(hl.Int(32), limited), 0, extent - 1)
