"""Convolution of blocked 8-bit numbers.

``x (16, OW, OH, kx, ky, C1)`` uint8 is what each output reads at each tap; it overlaps itself in memory, as that of
``conv`` does. Products of ``adjacent`` neighbouring channels are added up at once, which is what instructions for small
integers do: ``w (adjacent, 16 out, steps, kx, ky, C1 in, C1 out)``; ``steps`` times ``adjacent`` is 16, or less where
one block of inputs has few channels. ``bias (16, C1 out)`` int32; ``out (16, OW, OH, C1 out)``.

Where no instruction adds up four, positions are counted along all rows, in tiles of ``width``: ``left`` is a copy of
what a tile reads, ``sums`` are those of all positions. Two products are added up at once, of numbers of 16 bits: the
copy has that width, and ``wide`` are the weights in it. With the attribute ``halves`` sums of two products fit 16 bits,
whatever the inputs: they are added up so first, and two such sums next.

Sums are exact: they are kept in int32, and lowering asks for no convolution whose sums could be greater.

A tile of ``width`` positions by ``blocks`` channel blocks is accumulated in registers, as in ``conv``; each vector has
the sums of a block's 16 channels. One instruction multiplies four neighbouring inputs of a position by the weights of
16 outputs where the machine has such an instruction (``vpdpbusd``); its tiles are of one row.

Where it has not, two are multiplied (``vpmaddwd``, on numbers of 16 bits, so that nothing saturates; or, where weights
are so small that nothing can, ``vpmaddubsw`` on bytes and ``vpmaddwd`` on its sums). The inputs of a group of rows are
copied then, in the order in which tiles read them, so tiles are of positions counted along all rows: none is left over
at the end of a row. Over a group pass the weights of ``blocks`` channel blocks, widened once where few positions of a
tile share the work; the sums wait in the first-level cache for what follows.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, computed, parameter, variables
from opbuild.backend.halide.epilogue import apply_epilogue, stored
from opbuild.families.blocked import BLOCK
from opbuild.families.conv.halide import accumulate_groups, divide_outer, tile_rows
from opbuild.families.layouts import PAIR, is_flat
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

INT16, INT32 = hl.Int(16), hl.Int(32)


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``kernel`` as (x, y), ``adjacent``, ``steps``, ``epilogue``, perhaps ``halves``."""
    adjacent, halves = desc.attrs["adjacent"], bool(desc.attrs.get("halves"))
    return _flat(desc, halves) if is_flat(adjacent, halves) else _rows(desc)


def _rows(desc: OpDesc) -> Definition:
    """Define it by positions of rows."""
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, w, bias = params["x"], params["w"], params["bias"]
    adjacent, r = desc.attrs["adjacent"], _domain(desc, x, desc.attrs["adjacent"])
    index = lane, ox, oy, block = variables("lane ox oy block")
    taps = (r[2], r[3], r[4])
    acc = hl.Func("acc")
    acc[index] = bias[lane, block]
    left = x[(r[0] + adjacent * r[1], ox, oy, *taps)]
    acc[index] += hl.cast(INT32, left) * hl.cast(INT32, w[(r[0], lane, r[1], *taps, block)])
    return replace(stored(desc, params, list(index), {"acc": acc}, r), dots=True)


def _flat(desc: OpDesc, halves: bool) -> Definition:
    """Define it by tiles of positions that are counted along all rows."""
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, w, bias = params["x"], params["w"], params["bias"]
    adjacent, width = desc.attrs["adjacent"], desc.variant["width"]
    r = _domain(desc, x, adjacent // PAIR if halves else adjacent)
    taps = (r[2], r[3], r[4])
    left = _copied(x, width, x.type() if halves else INT16)
    acc, sums = hl.Func("acc"), hl.Func("sums")
    lane, ox, oy, block, position, tile, flat = variables("lane ox oy block position tile flat")
    place, index = (lane, position, block, tile), (lane, ox, oy, block)
    functions = {"left": left, "acc": acc, "sums": sums}
    acc[place] = bias[lane, block]
    if halves:
        functions["halves"] = products = _halves(left, w, adjacent)
        acc[place] += hl.cast(INT32, products[(r[0], *place, r[1], *taps)])
    else:
        functions["wide"] = wide = _widened(w)
        read = left[(r[0] + adjacent * r[1], position, *taps, tile)]
        acc[place] += hl.cast(INT32, read) * hl.cast(INT32, wide[(r[0], lane, r[1], *taps, block)])
    sums[lane, flat, block] = acc[lane, flat % width, block, flat // width]
    value = apply_epilogue(desc, params, sums[lane, ox + x.dim(1).extent() * oy, block], index)
    return computed(desc, list(params.values()), index, value, functions, {"r": r}, dots=True)


def _domain(desc: OpDesc, x: Any, adjacent: int) -> Any:
    """Return the domain of a sum: neighbouring channels, steps, taps and channel blocks."""
    extents = (adjacent, desc.attrs["steps"], *desc.attrs["kernel"], x.dim(5).extent())
    return hl.RDom([(0, extent) for extent in extents], "r")


def _copied(x: Any, width: int, kind: Any) -> Any:
    """Return the inputs of tiles of ``width`` positions; beyond the last position, those of the last one."""
    left, place = hl.Func("left"), variables("number position kx ky c tile")
    number, position, kx, ky, c, tile = place
    columns, rows = x.dim(1).extent(), x.dim(2).extent()
    flat = hl.min(tile * width + position, columns * rows - 1)
    at = (hl.unsafe_promise_clamped(flat % columns, 0, columns - 1), hl.clamp(flat // columns, 0, rows - 1))
    left[place] = hl.cast(kind, x[(number, *at, kx, ky, c)])
    return left


def _widened(w: Any) -> Any:
    """Return the weights in 16 bits."""
    wide, place = hl.Func("wide"), variables("pair lane step kx ky c block")
    wide[place] = hl.cast(INT16, w[place])
    return wide


def _halves(left: Any, w: Any, adjacent: int) -> Any:
    """Return sums of two products in 16 bits, which hold them: that the addition saturates names the instruction."""
    halves, byte = hl.Func("halves"), hl.RDom([(0, PAIR)], "byte")
    pair, lane, position, block, tile, step, *taps = place = variables("pair lane position block tile step kx ky c")
    number = byte.x + PAIR * pair
    factors = left[(number + adjacent * step, position, *taps, tile)], w[(number, lane, step, *taps, block)]
    halves[place] = hl.cast(INT16, 0)
    halves[place] = hl.saturating_add(halves[place], hl.cast(INT16, factors[0]) * hl.cast(INT16, factors[1]))
    return halves


POSITIONS, COPIED = 448, 512 * 1024
"""Outputs whose inputs are copied together, and bytes of the copy, at most about: so many that reading the weights once
more for them counts little, and so few that a core's cache keeps the copy."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``width`` and ``blocks``, the register tile."""
    if "left" in definition.functions:
        _schedule_flat(definition, desc, machine)
    else:
        accumulate_groups(definition, tile_rows(definition, desc))


def _schedule_flat(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Take tiles of positions counted along all rows."""
    out, blocks = definition.outputs[0], desc.variant["blocks"]
    lane, ox, oy, block = (definition.variables[name] for name in ("lane", "ox", "oy", "block"))
    bo, bi, rows, row = (hl.Var(name) for name in ("bo", "bi", "rows", "row"))
    out.split(block, bo, bi, blocks, hl.TailStrategy.ShiftInwards).reorder(lane, bi, ox, oy, bo)
    out.vectorize(lane).unroll(bi).never_partition_all()
    divide_outer(definition, desc, (oy, bo))
    width, number = out.output_buffer().dim(1).extent(), desc.attrs["adjacent"] * desc.attrs["steps"]
    inputs = definition.inputs[0].dim(5).extent() * (number * PAIR * prod(desc.attrs["kernel"]))
    positions = hl.min(POSITIONS, COPIED // hl.max(1, inputs))
    together = hl.max(1, positions // hl.max(1, width))
    out.split(oy, rows, row, together, hl.TailStrategy.GuardWithIf).reorder(ox, row, bo, rows)
    _operands(definition, desc, (bo, rows), machine)
    _sums(definition, desc, bo)


def _operands(definition: Definition, desc: OpDesc, loops: tuple[hl.Var, hl.Var], machine: Machine) -> None:
    """Copy inputs at the loop over groups of rows, and widen weights at that over tiles of channel blocks."""
    out, left, wide = definition.outputs[0], definition.functions["left"], definition.functions.get("wide")
    number, position, kx, ky, c, tile = left.args()
    left.compute_at(out, loops[1]).bound_extent(number, desc.attrs["adjacent"] * desc.attrs["steps"])
    left.bound_extent(position, desc.variant["width"]).reorder(number, kx, ky, c, position, tile)
    left.vectorize(number).never_partition_all()
    if wide is not None and desc.inputs[1].dtype == "int8" and machine.vectors(BLOCK) > 1:
        pair, lane, *_ = wide.args()
        wide.compute_at(out, loops[0]).bound_extent(pair, PAIR).bound_extent(lane, BLOCK)
        wide.vectorize(pair).vectorize(lane).never_partition_all()


def _sums(definition: Definition, desc: OpDesc, loop: hl.Var) -> None:
    """Add up a tile in registers, and keep the sums at a loop of the output."""
    width, blocks = desc.variant["width"], desc.variant["blocks"]
    sums, acc, r = definition.functions["sums"], definition.functions["acc"], definition.domains["r"]
    lane, flat, block = sums.args()
    _, position, _, tile = acc.args()
    sums.compute_at(definition.outputs[0], loop).bound_extent(block, blocks).align_bounds(flat, width)
    sums.split(flat, tile, position, width).reorder(lane, block, position, tile)
    sums.vectorize(lane).unroll(position).unroll(block).never_partition_all()
    acc.compute_at(sums, tile).bound_extent(position, width).bound_extent(block, blocks)
    acc.vectorize(lane).unroll(block).unroll(position).never_partition_all()
    update = acc.update().reorder(r[0], lane, block, position, *(r[axis] for axis in range(1, 5)))
    update.atomic().vectorize(r[0]).vectorize(lane).unroll(block).unroll(position)
    if "halves" in definition.functions:
        _schedule_halves(acc, definition.functions["halves"])


def _schedule_halves(acc: hl.Func, halves: hl.Func) -> None:
    """Schedule the sums of 16 bits: those of a position and a block stay in registers."""
    _, position, *_ = acc.args()
    pair, lane, *others = halves.args()
    halves.compute_at(acc, position).bound_extent(pair, PAIR).bound_extent(lane, BLOCK)
    halves.vectorize(pair).vectorize(lane)
    (byte,) = halves.rvars(0)
    # Sums that saturate have an order; these do not saturate.
    halves.update().reorder(byte, pair, lane, *others).atomic(True).vectorize(byte).vectorize(pair).vectorize(lane)
