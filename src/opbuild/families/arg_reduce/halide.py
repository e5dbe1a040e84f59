"""ArgMax and ArgMin: positions, as int64.

Attributes: ``least`` (ArgMin); ``last``: the last of equal elements instead of the first; ``layout``: ``inner`` for
``x`` of ``(C, rows, rows)`` and an output ``(rows, rows)``, ``outer`` for ``x`` of ``(I, C, rows)`` and an output ``(I,
rows)``.

Elements are compared as integers that sort as they do: NaN above all (it wins in both operators), zeros of both signs
equal. A pair (key, position) wins by its key, then by its position, so pairs can be combined in any order.

``inner``: a row at a time, lanes side by side. ``outer``: ``lanes`` columns at a time. Variant: ``lanes`` for
``outer``, ``vector``, the elements of a vector, for ``inner``. Limits: ``lanes`` <= I.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import TYPES, Definition, computed, parameters, variables
from opbuild.backend.halide.rows import alone, parallel_columns, parallel_rows
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

Pair = tuple[Any, Any]


def define(desc: OpDesc) -> Definition:
    """Return the definition of an ArgMax or ArgMin."""
    return _inner(desc) if desc.attrs["layout"] == "inner" else _outer(desc)


def _inner(desc: OpDesc) -> Definition:
    inputs = parameters(desc)
    x = inputs[0]
    lane, y, z = variables("lane y z")
    lanes = desc.variant["vector"]
    count = x.dim(0).extent()
    chunks = hl.RDom([(0, count // lanes)], "chunks")
    across = hl.RDom([(0, lanes)], "across")
    tail = hl.RDom([(0, count % lanes)], "tail")
    partial, total = hl.Func("partial"), hl.Func("total")

    partial[lane, y, z] = _none(desc)
    position = chunks.x * lanes + lane
    partial[lane, y, z] = _better(desc, partial[lane, y, z], (_key(desc, x[position, y, z]), position))
    total[y, z] = _none(desc)
    total[y, z] = _better(desc, total[y, z], (partial[across.x, y, z][0], partial[across.x, y, z][1]))
    position = count // lanes * lanes + tail.x
    total[y, z] = _better(desc, total[y, z], (_key(desc, x[position, y, z]), position))
    functions = {"partial": partial, "total": total}
    return computed(desc, inputs, (y, z), hl.cast(hl.Int(64), total[y, z][1]), functions, {"chunks": chunks})


def _outer(desc: OpDesc) -> Definition:
    inputs = parameters(desc)
    x = inputs[0]
    i, z = variables("i z")
    domain = hl.RDom([(0, x.dim(1).extent())], "c")
    total = hl.Func("total")
    total[i, z] = _none(desc)
    total[i, z] = _better(desc, total[i, z], (_key(desc, x[i, domain.x, z]), domain.x))
    return computed(desc, inputs, (i, z), hl.cast(hl.Int(64), total[i, z][1]), {"total": total}, {"c": domain})


def _key(desc: OpDesc, x: Any) -> Any:
    """Return the integer that stands for an element: the greater, the better."""
    kind = TYPES[desc.inputs[0].dtype]
    integer = _key_type(desc)
    if not kind.is_float():
        key = hl.cast(integer, x)
        return ~key if desc.attrs["least"] else key
    bits = hl.reinterpret(integer, x)
    key = hl.select(bits < hl.cast(integer, 0), bits ^ integer.max(), bits)
    key = hl.select(hl.strict_float(x == hl.cast(kind, 0)), hl.cast(integer, 0), key)
    return hl.select(hl.is_nan(x), integer.max(), ~key if desc.attrs["least"] else key)


def _key_type(desc: OpDesc) -> Any:
    return hl.Int(64 if TYPES[desc.inputs[0].dtype].bits() > 32 else 32)


def _none(desc: OpDesc) -> Any:
    """Return the pair that loses against every other."""
    nowhere = hl.i32(-1) if desc.attrs["last"] else hl.Int(32).max()
    return hl.Tuple([_key_type(desc).min(), nowhere])


def _better(desc: OpDesc, old: Any, new: Pair) -> Any:
    closer = new[1] > old[1] if desc.attrs["last"] else new[1] < old[1]
    better = (new[0] > old[0]) | ((new[0] == old[0]) & closer)
    return hl.Tuple([hl.select(better, new[0], old[0]), hl.select(better, new[1], old[1])])


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule an ArgMax or ArgMin."""
    out = definition.outputs[0]
    total = definition.functions["total"]
    if desc.attrs["layout"] == "inner":
        alone(out, definition.tasks)
        row = parallel_rows(out, 0, definition.tasks)
        partial = definition.functions["partial"]
        lane = partial.args()[0]
        partial.compute_at(out, row).bound_extent(lane, desc.variant["vector"]).vectorize(lane)
        partial.update().reorder(lane, definition.domains["chunks"].x).vectorize(lane)
        total.compute_at(out, row)
        return
    lanes = desc.variant["lanes"]
    column = parallel_columns(definition, desc)
    kept = total.args()[0]
    total.compute_at(out, column).bound_extent(kept, lanes).vectorize(kept)
    total.update().reorder(kept, definition.domains["c"].x).vectorize(kept)
