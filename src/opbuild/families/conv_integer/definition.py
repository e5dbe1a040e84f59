"""Convolution of blocked 8-bit numbers: the definition.

``x (16, OW, OH, kx, ky, C1)`` uint8 is what each output reads at each tap; it overlaps itself in memory, as that of
``conv`` does. Products of ``adjacent`` neighbouring channels are added up at once, which is what instructions for small
integers do: ``w (adjacent, 16 out, steps, kx, ky, C1 in, C1 out)``; ``steps`` times ``adjacent`` is 16, or less where
one block of inputs has few channels. ``bias (16, C1 out)`` int32; ``out (16, OW, OH, C1 out)``.

Where no instruction adds up four, positions are counted along all rows, in tiles of ``width``: ``left`` is a copy of
what a tile reads, ``sums`` are those of all positions. Two products are added up at once, of numbers of 16 bits: the
copy has that width, and ``wide`` are the weights in it. With the attribute ``halves`` sums of two products fit 16 bits,
whatever the inputs: they are added up so first, and two such sums next.

Sums are exact: they are kept in int32, and lowering asks for no convolution whose sums could be greater.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, named, parameter, variables
from opbuild.backend.halide.epilogue import apply_epilogue, stored
from opbuild.families.conv_integer.layouts import PAIR, is_flat
from opbuild.kernel.opdesc import OpDesc

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
    acc, sums, out = (hl.Func(name) for name in ("acc", "sums", "out"))
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
    out[index] = apply_epilogue(desc, params, sums[lane, ox + x.dim(1).extent() * oy, block], index)
    constrain_output(out, desc.outputs[0])
    return Definition(list(params.values()), [out], named(index), functions, {"r": r}, dots=True)


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
