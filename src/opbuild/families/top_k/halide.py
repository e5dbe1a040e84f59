"""Places of the greatest elements: by ranks or by digits.

``x (C, rows, rows)``, ``out (K, rows, rows)`` as int64, and ``wanted (K)``, which is not read: loops may not depend on
the extents of what is written. ``out`` is where the K greatest elements of a row stand, the greatest first; of equal
elements those that stand first. ``attrs["least"]``: the least ones instead. NaN is greater than every number, and zeros
of both signs are equal.

Elements are compared as unsigned integers that sort as they do, so that sorting by digits serves all types. With chunks
(variant ``chunk``), only K of them are sorted: those whose greatest elements are the K greatest, the first of equal
ones. An element of another chunk has K better ones, one in each of these.

Schedule: row by row, the rows divided among the tasks.

Variant: ``chunk`` and ``digits``, as ``choose`` says; neither has a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import TYPES, Definition, computed, parameters, variables
from opbuild.backend.halide.rows import parallel_rows
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

LANES = 16
"""Elements that are compared, or made ready, side by side."""

VALUES = 256
"""Values of a digit: 8 bits."""

At = Callable[[Any], Any]
"""Returns an element of the row by its index."""


def define(desc: OpDesc) -> Definition:
    """Return the definition of the places of a TopK."""
    inputs = parameters(desc)
    (x, wanted), chunk = inputs, int(desc.variant["chunk"])
    p, y, z, c = variables("p y z c")
    row = _Row(y, z, TYPES[desc.inputs[0].dtype].bits(), bool(desc.variant["digits"]))
    extent = x.dim(0).extent()
    ordered = _ordered(x[hl.clamp(c, 0, extent - 1), y, z], bool(desc.attrs["least"]))
    key = row.function("key", c, hl.select(c < extent, ordered, hl.cast(ordered.type(), 0)))
    place = _of_chunks(row, key, (extent, wanted.dim(0).extent()), chunk) if chunk else row.sorted("all", key, extent)
    return computed(desc, inputs, (p, y, z), hl.cast(hl.Int(64), place(p)), row.functions, row.loops)


def _ordered(x: Any, least: bool) -> Any:
    """Return the unsigned integer that stands for an element: the greater, the better; above its bits are zeros."""
    kind = x.type()
    same, sign = hl.UInt(kind.bits()), 1 << (kind.bits() - 1)
    bits = hl.reinterpret(same, x)
    if kind.is_float():
        bits = hl.select(hl.strict_float(x == hl.cast(kind, 0)), hl.cast(same, 0), bits)
        bits = hl.select((bits & _whole(same, sign)) != hl.cast(same, 0), ~bits, bits | _whole(same, sign))
        bits = hl.select(hl.is_nan(x), same.max(), bits)
    elif kind.is_int():
        bits = bits ^ _whole(same, sign)
    return hl.cast(hl.UInt(max(32, kind.bits())), ~bits if least else bits)


def _whole(kind: Any, value: int) -> Any:
    """Return a literal of an unsigned type; those of 64 bits do not fit Python's way to Halide."""
    return hl.cast(kind, 1) << hl.cast(kind, value.bit_length() - 1)


@dataclass
class _Row:
    """The functions of one row; all are of an index and of the row, ``y`` and ``z``.

    Attributes:
        y: Variable of the row.
        z: The other one.
        bits: Of an element.
        by_digits: Whether elements are sorted by digits.
        functions: All functions by name, in the order in which they are computed.
        loops: Loops of some functions' updates, by the function's name: to unroll, or around a vector.
    """

    y: Any
    z: Any
    bits: int
    by_digits: bool
    functions: dict[str, Any] = field(default_factory=dict)
    loops: dict[str, Any] = field(default_factory=dict)

    def function(self, name: str, index: Any, value: Any) -> Any:
        """Return a function of ``index``, to be stored."""
        made = hl.Func(name)
        made[index, self.y, self.z] = value
        self.functions[name] = made
        return made

    def at(self, function: Any, index: Any) -> Any:
        """Return an element of a function."""
        return hl.Expr(function[index, self.y, self.z])

    def update(self, function: Any, index: Any, value: Any) -> None:
        """Add an update of a function."""
        function[index, self.y, self.z] = value

    def sorted(self, name: str, key: Any, count: Any) -> At:
        """Return the places of a function's elements in descending order; of equal ones the first first."""
        order = self._digits(name, key, count) if self.by_digits else self._ranks(name, key, count)
        return lambda index: hl.unsafe_promise_clamped(self.at(order, index), 0, count - 1)

    def _ranks(self, name: str, key: Any, count: Any) -> Any:
        c, t = hl.Var("c"), hl.Var("t")
        better = self.function(f"{name}_better", c, hl.i32(0))
        other = hl.RDom([(0, count)], f"{name}_other")
        mine, its = self.at(key, c), self.at(key, other.x)
        before = (its > mine) | ((its == mine) & (other.x < c))
        self.update(better, c, self.at(better, c) + hl.cast(hl.Int(32), before))
        self.loops[f"{name}_better"] = other.x
        rank = self.function(f"{name}_rank", c, self.at(better, c))
        order = self.function(f"{name}_order", t, hl.i32(0))
        own = hl.RDom([(0, count)], f"{name}_own")
        self.update(order, hl.unsafe_promise_clamped(self.at(rank, own.x), 0, count - 1), own.x)
        return order

    def _digits(self, name: str, key: Any, count: Any) -> Any:
        order: Any = None
        for number in range(self.bits // 8):
            order = self._digit(f"{name}{number}", key, count, 8 * number, order)
        return order

    def _digit(self, name: str, key: Any, count: Any, shift: int, before: Any) -> Any:
        """Return an order that is sorted by one more digit, the least first; equal ones stay in the order before."""

        def source(index: Any) -> Any:
            return index if before is None else hl.unsafe_promise_clamped(self.at(before, index), 0, count - 1)

        def digit(index: Any) -> Any:
            return hl.cast(hl.Int(32), ~hl.cast(hl.UInt(8), self.at(key, source(index)) >> shift))

        b, t = hl.Var("b"), hl.Var("t")
        counts = self.function(f"{name}_counts", b, hl.i32(0))
        each = hl.RDom([(0, count)], f"{name}_each")
        self.update(counts, digit(each.x), self.at(counts, digit(each.x)) + 1)
        starts = self.function(f"{name}_starts", b, hl.i32(0))
        later = hl.RDom([(1, VALUES - 1)], f"{name}_later")
        self.update(starts, later.x, self.at(starts, later.x - 1) + self.at(counts, later.x - 1))
        # In one function: where the next element with each digit goes, and behind that where each element goes.
        first = self.at(starts, hl.clamp(t, 0, VALUES - 1))
        places = self.function(f"{name}_places", t, hl.select(t < VALUES, first, 0))
        # Two steps for an element: its place is written down, then its digit's next place moves on.
        one = hl.RDom([(0, 2), (0, count)], f"{name}_one")
        here = digit(one[1])
        changed = hl.unsafe_promise_clamped(hl.select(one[0] == 0, VALUES + one[1], here), 0, VALUES + count - 1)
        self.update(places, changed, self.at(places, here) + one[0])
        self.loops[f"{name}_places"] = one[0]
        order = self.function(f"{name}_order", t, hl.i32(0))
        own = hl.RDom([(0, count)], f"{name}_own")
        target = hl.unsafe_promise_clamped(self.at(places, VALUES + own.x), 0, count - 1)
        self.update(order, target, source(own.x))
        return order


def _of_chunks(row: _Row, key: Any, extents: tuple[Any, Any], size: int) -> At:
    """Return the places of the greatest elements, looked for only in the chunks that may have them."""
    extent, wanted = extents
    chunks = (extent + size - 1) // size
    looked_at = hl.min(wanted, chunks)
    lane, j, t, q = variables("lane j t q")
    lanes = hl.Func("chunk_lanes")
    within = hl.RDom([(0, size // LANES)], "within")
    index = (lane, j, row.y, row.z)
    lanes[index] = row.at(key, j * size + lane)
    lanes[index] = hl.max(hl.Expr(lanes[index]), row.at(key, j * size + within.x * LANES + lane))
    row.functions["chunk_lanes"] = lanes
    across = hl.RDom([(0, LANES)], "across")
    best = row.function("chunk_best", j, hl.cast(hl.UInt(max(32, row.bits)), 0))
    row.update(best, j, hl.max(row.at(best, j), hl.Expr(lanes[across.x, j, row.y, row.z])))
    order = row.sorted("chunk", best, chunks)
    chosen = row.function("chosen", t, hl.i32(0))
    first = hl.RDom([(0, looked_at)], "first")
    row.update(chosen, order(first.x), hl.i32(1))
    number = row.function("chunk_number", t, hl.i32(0))
    later = hl.RDom([(1, hl.max(chunks - 1, 0))], "later")
    row.update(number, later.x, row.at(number, later.x - 1) + row.at(chosen, later.x - 1))
    # In the order in which they stand, so that of equal elements the first stays the first.
    listed = row.function("listed", t, hl.i32(0))
    every = hl.RDom([(0, chunks)], "every")
    every.where(row.at(chosen, every.x) == 1)
    row.update(listed, hl.unsafe_promise_clamped(row.at(number, every.x), 0, looked_at - 1), every.x)

    def place(index: Any) -> Any:
        chunk = hl.unsafe_promise_clamped(row.at(listed, index // size), 0, chunks - 1)
        return chunk * size + index % size

    few = row.function("few", q, row.at(key, place(q)))
    found = row.sorted("few", few, looked_at * size)
    return lambda index: place(found(index))


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a TopK."""
    (out,) = definition.outputs
    row = parallel_rows(out, 1, definition.tasks)
    for name, function in definition.functions.items():
        first, kind = function.args()[0], name.rpartition("_")[2]
        if kind == "better":  # kept in a register for the vector of ranks that asks for it
            rank = definition.functions[name.replace("better", "rank")]
            function.compute_at(rank, rank.args()[0]).bound_extent(first, LANES).vectorize(first)
            function.update().reorder(first, definition.domains[name]).vectorize(first)
            continue
        function.compute_at(out, row)
        if kind in ("key", "few", "rank"):
            inner = hl.Var("inner")
            function.split(first, first, inner, LANES, hl.TailStrategy.RoundUp).vectorize(inner)
        elif kind == "lanes":
            function.vectorize(first, LANES).update().vectorize(first, LANES)
        elif kind == "places":
            function.update().unroll(definition.domains[name])
