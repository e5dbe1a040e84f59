"""Weights of convolutions into blocks.

``w (C in * taps, C out)`` is weights as they lie in the graph, dense; both numbers of channels are whole blocks.
``out (16, 16, taps, C1, C1)`` is what ``conv`` reads: ``out[o, i, t]``, blocks of inputs by blocks of outputs. With
``turned`` it is what a transposed convolution reads, ``out[i, o, taps - 1 - t]`` with inputs and outputs changed over.

With ``tile``, m, it is what ``winograd`` reads: ``out (16, C, C1, (m + 2) ** 2)``, transformed, turned or not.

With ``blocked``, weights lie in blocks already, ``w (16 out, 16 in, kx, ky, C1 in, C1 out)``, of which ``turned``
changes inputs and outputs over. Without ``tile``, ``out (16, 16, kx, ky, C1, C1)``: views say which taps there are, and
in which order.

A block of outputs by a block of inputs is read row by row, as it lies, and transposed in registers, ``EDGE`` by
``EDGE`` elements at a time, into memory that stays in the first-level cache; from there it is stored in whole vectors,
transformed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, parameter, variables
from opbuild.backend.halide.division import divide
from opbuild.families.blocked import BLOCK
from opbuild.families.layouts import TRANSFORMS
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``taps``, ``turned``, and perhaps ``tile``."""
    if desc.attrs.get("blocked"):
        return _from_blocks(desc)
    w, taps = parameter(desc.inputs[0]), desc.attrs["taps"]
    j, o, lane, other, tap, block, outer = variables("j o lane other tap block outer")
    names = ("rows", "columns", "turned", "blocks")
    rows, columns, turned, blocks = (hl.Func(name) for name in names)
    rows[j, o] = w[j, o]
    columns[o, j] = rows[j, o]
    places = (lane, other, tap, block, outer)
    if desc.attrs["turned"]:
        turned[places] = columns[block * BLOCK + other, (outer * BLOCK + lane) * taps + (taps - 1 - tap)]
        blocks[places] = turned[places]
    else:
        blocks[places] = columns[outer * BLOCK + lane, (block * BLOCK + other) * taps + tap]
    functions = dict(zip(names, (rows, columns, turned, blocks), strict=True))
    loops = {each.name(): each for each in places}
    if "tile" not in desc.attrs:
        return _written(desc, w, blocks, loops, functions)
    return _transformed(desc, w, lambda x, y: blocks[lane, other, y * 3 + x, block, outer], loops, functions)


def _from_blocks(desc: OpDesc) -> Definition:
    w, (lane, other, kx, ky, block, outer) = parameter(desc.inputs[0]), variables("lane other kx ky block outer")
    places, (turned, blocks) = (lane, other, kx, ky, block, outer), (hl.Func(name) for name in ("turned", "blocks"))
    turned[places] = w[other, lane, kx, ky, outer, block] if desc.attrs["turned"] else w[places]
    blocks[places] = turned[places]
    functions, loops = {"turned": turned, "blocks": blocks}, {each.name(): each for each in places}
    if "tile" not in desc.attrs:
        return _written(desc, w, blocks, loops, functions)

    def tap(x: Any, y: int) -> Any:
        x, y = (2 - x, 2 - y) if desc.attrs["turned"] else (x, y)
        return blocks[lane, other, x, y, block, outer]

    return _transformed(desc, w, tap, loops, functions)


def _transformed(
    desc: OpDesc, w: Any, tap: Callable[[Any, int], Any], loops: dict[str, Any], functions: dict[str, Any]
) -> Definition:
    """Return the definition of Winograd's transform of the function ``tap`` of (x, y)."""
    lane, other, block, outer = (loops[name] for name in ("lane", "other", "block", "outer"))
    a, kx, channel, point = variables("a kx channel point")
    half, points, out = (hl.Func(name) for name in ("half", "points", "out"))
    matrix = TRANSFORMS[desc.attrs["tile"]]
    reads = [tap(kx, ky) for ky in range(3)]
    half[lane, a, kx, other, block, outer] = hl.mux(a, [_combined(row, reads) for row in matrix])
    found = [
        _combined(row, [half[lane, index, each, other, block, outer] for each in range(3)])
        for index in range(len(matrix))
        for row in matrix
    ]
    points[lane, point, other, block, outer] = hl.mux(point, found)
    out[lane, channel, outer, point] = points[lane, point, channel % BLOCK, channel // BLOCK, outer]
    named = {"channel": channel, "point": point}
    return _written(desc, w, out, loops | named, functions | {"half": half, "points": points})


def _written(desc: OpDesc, w: Any, out: Any, loops: dict[str, Any], functions: dict[str, Any]) -> Definition:
    constrain_output(out, desc.outputs[0])
    return Definition([w], [out], loops, functions)


def _combined(factors: Sequence[float], values: Sequence[Any]) -> Any:
    """Return the sum of values with factors, those of 0 left out."""
    terms = [value * hl.f32(factor) for factor, value in zip(factors, values, strict=True) if factor]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


EDGE = 8
"""Edge of what is transposed in registers: as in ``copy``, faster than 16 even where registers hold 16 elements."""


def schedule(definition: Definition, desc: OpDesc, _machine: Machine) -> None:
    """Schedule it; there are no variants."""
    out, functions, names = definition.outputs[0], definition.functions, definition.variables
    lane, other, block, outer = (names[name] for name in ("lane", "other", "block", "outer"))
    flat, buffer, is_turned = hl.Var("flat"), out.output_buffer(), desc.attrs["turned"]
    from_rows, is_transformed, blocks = "rows" in functions, "points" in functions, functions["blocks"]
    if is_transformed:
        _transform(out, functions, names)
        extents = buffer.dim(1).extent() // BLOCK, buffer.dim(2).extent()
        functions["points"].compute_at(out, flat)
        if from_rows or is_turned:
            blocks.compute_at(out, flat)
    else:
        extents = buffer.dim(buffer.dimensions() - 2).extent(), buffer.dim(buffer.dimensions() - 1).extent()
    if is_turned:
        _transpose(blocks, (lane, other), functions["turned"], (BLOCK, BLOCK), blocks.args()[2:])
    elif from_rows:
        blocks.vectorize(lane)
    # Input channels are the inner loop, so that rows are read on where the last block ended.
    out.fuse(*((outer, block) if is_turned else (block, outer)), flat)
    divide(out, flat, extents[0] * extents[1], definition.tasks)
    if from_rows:
        columns, rows = functions["columns"], functions["rows"]
        columns.compute_at(out, flat)
        o, j = columns.args()
        _transpose(columns, (o, j), rows, (BLOCK, BLOCK * desc.attrs["taps"]), ())
        columns.never_partition_all()
        rows.never_partition_all()
    out.never_partition_all()
    blocks.never_partition_all()


def _transform(out: Any, functions: dict[str, Any], names: dict[str, Any]) -> None:
    """Compute all points of an input channel at once, into near memory; a block of them is stored point by point."""
    lane, other, block, outer, channel, point = (
        names[name] for name in ("lane", "other", "block", "outer", "channel", "point")
    )
    out.split(channel, block, other, BLOCK, hl.TailStrategy.RoundUp).reorder(lane, other, point, block, outer)
    out.vectorize(lane)
    points, half = functions["points"], functions["half"]
    points.vectorize(lane).unroll(point)
    lane, a, kx, *_ = half.args()
    half.compute_at(points, other).vectorize(lane).unroll(a).unroll(kx)


def _transpose(
    function: Any, axes: tuple[Any, Any], source: Any, extents: tuple[int, int], outer: tuple[Any, ...]
) -> None:
    """Store a function along its first axis from squares of ``source``, which are loaded along the second one."""
    xo, xi, yo, yi = variables("xo xi yo yi")
    exact, (x, y), (wide, high) = hl.TailStrategy.RoundUp, axes, extents
    function.bound_extent(x, wide).bound_extent(y, high)
    function.split(x, xo, xi, EDGE, exact).split(y, yo, yi, EDGE, exact).reorder(xi, yi, xo, yo, *outer)
    function.vectorize(xi).unroll(yi)
    source.compute_at(function, xo).bound_extent(x, EDGE).bound_extent(y, EDGE)
    source.reorder(y, x, *outer).reorder_storage(y, x, *outer).vectorize(y).unroll(x)
