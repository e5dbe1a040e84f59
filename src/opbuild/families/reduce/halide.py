"""Reductions.

Attributes: ``reduction``, one of ``REDUCTIONS``, and ``layout``. ``inner``: ``x`` is ``(R, R, rows, rows)``, the first
two dimensions are reduced, elements along the first one adjacent, and the output is ``(rows, rows)``. ``outer``: ``x``
is ``(I, R, R, rows, rows)``, the second and third one are reduced for ``I`` adjacent columns at once, and the output is
``(I, rows, rows)``. NaN wins over every number; a mean of nothing is NaN, a maximum of nothing the least value. In
the mode ``high_precision`` a float32 is reduced in float64 and rounded once.

``inner``: a row at a time in vector lanes. ``outer``: ``lanes`` columns at a time in registers. Variant:
``lanes`` for ``outer``, ``vector``, the elements of a vector, for ``inner``. Limits: ``lanes`` <= I.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul
from typing import Any

import halide as hl

from opbuild.backend.halide import precise
from opbuild.backend.halide.definition import TYPES, Definition, computed, parameters, variables
from opbuild.backend.halide.mathematics import (
    FLOAT32,
    FLOAT64,
    bounded,
    log,
    maximum,
    minimum,
    restore_nan,
)
from opbuild.backend.halide.rows import alone, divide_loops, parallel_rows, reduce_lanes, schedule_lanes
from opbuild.backend.halide.transcendental import exp
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

REDUCTIONS = ("sum", "mean", "max", "min", "prod", "l1", "l2", "log_sum", "log_sum_exp", "sum_square")

Reduce = Callable[[str, Callable[[Any], Any], Callable[[Any, Any], Any], Any], Any]
"""Reduces what a function makes of the input's elements: (name, function, combination, identity) -> value of a row."""


def define(desc: OpDesc) -> Definition:
    """Return the definition of a reduction."""
    return _inner(desc) if desc.attrs["layout"] == "inner" else _outer(desc)


def _inner(desc: OpDesc) -> Definition:
    inputs = parameters(desc)
    x = inputs[0]
    y, z = variables("y z")
    extents = [x.dim(axis).extent() for axis in (0, 1)]
    functions: dict[str, Any] = {}

    def reduce(name: str, term: Callable[[Any], Any], combine: Callable[[Any, Any], Any], identity: Any) -> Any:
        functions[name] = reduce_lanes(
            name, lambda i, j: term(x[i, j, y, z]), extents, (y, z), combine, identity, desc.variant["vector"]
        )
        return hl.Expr(functions[name].total[y, z])

    return computed(desc, inputs, (y, z), _reduction(desc, reduce, extents), functions)


def _outer(desc: OpDesc) -> Definition:
    inputs = parameters(desc)
    x = inputs[0]
    i, y, z = variables("i y z")
    extents = [x.dim(axis).extent() for axis in (1, 2)]
    functions: dict[str, Any] = {}
    domain = hl.RDom([(0, extent) for extent in extents], "r")

    def reduce(name: str, term: Callable[[Any], Any], combine: Callable[[Any, Any], Any], identity: Any) -> Any:
        functions[name] = hl.Func(name)
        functions[name][i, y, z] = identity
        functions[name][i, y, z] = combine(hl.Expr(functions[name][i, y, z]), term(x[i, domain[0], domain[1], y, z]))
        return hl.Expr(functions[name][i, y, z])

    return computed(desc, inputs, (i, y, z), _reduction(desc, reduce, extents), functions, {"r": domain})


def _reduction(desc: OpDesc, reduce: Reduce, extents: list[Any]) -> Any:
    """Return the value of one row."""
    kind = TYPES[desc.inputs[0].dtype]
    if not desc.is_precise:
        return _reduced(desc.attrs["reduction"], reduce, extents, kind)

    def reduce_wide(name: str, term: Callable[[Any], Any], combine: Callable[[Any, Any], Any], identity: Any) -> Any:
        return reduce(name, lambda x: term(hl.cast(FLOAT64, x)), combine, identity)

    return hl.cast(FLOAT32, _reduced(desc.attrs["reduction"], reduce_wide, extents, FLOAT64))


def _reduced(name: str, reduce: Reduce, extents: list[Any], kind: Any) -> Any:
    """Return the value of one row, computed in the type ``kind``; it may take two passes."""
    zero = hl.cast(kind, 0)
    if name in ("max", "min"):
        return _extreme(reduce, kind, name)
    if name == "prod":
        return reduce(name, lambda x: x, mul, hl.cast(kind, 1))
    if name == "l1":
        return reduce(name, lambda x: x if kind.is_uint() else hl.cast(kind, hl.abs(x)), add, zero)
    if name in ("l2", "sum_square"):
        squares = reduce(name, lambda x: x * x, add, zero)
        return hl.sqrt(squares) if name == "l2" else squares
    if name == "log_sum_exp":
        # Shifted by the greatest element, so that no power overflows; not by an infinite one, which would make NaN.
        greatest = reduce("greatest", lambda x: x, hl.max, kind.min())
        shift = hl.select(hl.is_finite(greatest), greatest, zero)
        powers = reduce("powers", lambda x: hl.strict_float(_power(x - shift, kind)), _add_strictly, zero)
        return hl.strict_float(log(powers) + shift)
    if name == "log_sum":
        return hl.strict_float(log(reduce(name, lambda x: x, _add_strictly, zero)))
    total = reduce(name, lambda x: x, add, zero)
    if name != "mean":
        return total
    # Strictly: a compiler that expects no NaN makes 0 of the mean of nothing.
    return hl.strict_float(total / (hl.cast(kind, extents[0]) * hl.cast(kind, extents[1])))


def _power(x: Any, kind: Any) -> Any:
    """Return e to the power of a number that is not positive, or infinite, or NaN."""
    if kind != FLOAT64:
        return exp(x)
    limited = precise.exp(bounded(x, -600.0, 0.0))
    return restore_nan(x, hl.select(x > hl.f64(0.0), hl.f64(float("inf")), limited))


def _extreme(reduce: Reduce, kind: Any, name: str) -> Any:
    identity = kind.min() if name == "max" else kind.max()
    if not kind.is_float():
        return reduce(name, lambda x: x, hl.max if name == "max" else hl.min, identity)
    keep = maximum if name == "max" else minimum
    return reduce(name, lambda x: x, lambda a, b: hl.strict_float(keep(a, b)), identity)


def _add_strictly(a: Any, b: Any) -> Any:
    """Return a sum that the compiler must expect to be infinite or NaN: the logarithm asks for that."""
    return hl.strict_float(a + b)


TREES = ("sum", "mean", "prod", "l1", "l2", "sum_square")
"""Reductions whose lanes Halide combines as a tree; it does not see that those which keep NaN are associative."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a reduction."""
    if desc.attrs["layout"] == "inner":
        _schedule_inner(definition, desc)
    else:
        _schedule_outer(definition, desc, machine)


def _schedule_inner(definition: Definition, desc: OpDesc) -> None:
    out = definition.outputs[0]
    alone(out, definition.tasks)
    row = parallel_rows(out, 0, definition.tasks)
    for name, reduction in definition.functions.items():
        schedule_lanes(reduction, out, row, tree=name in TREES)


def _schedule_outer(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    out = definition.outputs[0]
    lanes = desc.variant["lanes"]
    i, y, z = (definition.variables[name] for name in ("i", "y", "z"))
    io, ii = variables("io ii")
    vector = min(lanes, machine.lanes)
    out.split(i, io, ii, lanes, hl.TailStrategy.ShiftInwards).reorder(ii, io, y, z).vectorize(ii, vector).unroll(ii)
    buffer = out.output_buffer()
    strips = (buffer.dim(0).extent() + lanes - 1) // lanes
    alone(out, definition.tasks)
    divide_loops(
        out, [(io, strips, 1), (y, buffer.dim(1).extent(), 1), (z, buffer.dim(2).extent(), 1)], definition.tasks
    )
    domain = definition.domains["r"]
    for function in definition.functions.values():
        kept = function.args()[0]
        function.compute_at(out, io).bound_extent(kept, lanes).vectorize(kept, vector).unroll(kept)
        function.update().reorder(kept, domain[0], domain[1]).vectorize(kept, vector).unroll(kept)
