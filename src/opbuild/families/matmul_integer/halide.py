"""Products of matrices of bytes.

``out[n, m] = epilogue(sum over k of lhs[k, m] * rhs[k, n])``, as many times as there are batches: uint8 by int8, the
sum in int32, which wraps. Other types and zero points are for who makes the operands and the epilogue.

``rhs`` lies as ``(group, panel, K/group, N/panel)``: panels of columns, in which a group of neighbours along K, four or
two, are adjacent, as the instructions take them; one matrix for all batches or one each. With the attribute ``halves``
groups are of four, and sums of two products fit 16 bits: they are added up so first. What lies beyond K and N is never
looked at. The ``epilogue`` is an expression over the sum and the operands that are left, each of the output's rank; a
stride of 0 repeats.

With the attribute ``excess`` two more operands say what ``rhs`` lacks for that: each panel has as many rows of numbers
for its columns, ``excess (panel, count, N/panel)`` int8, and ``places (count, N/panel)`` int32 are these rows' places
along K. Rows of zeros fill up panels that need fewer.

Schedule: as ``matmul`` computes those of float32.

A tile of ``rows`` by so many ``panels`` of sums stays in registers while K passes, a group of products of a lane at a
time: four by one instruction (VPDPBUSD) where the level has it, else two, widened to 16 bits (VPMADDWD). The left
operand is widened once, before all tiles. Where numbers on the right are so small that two products fit 16 bits, bytes
are multiplied (VPMADDUBSW) and the sums of two added up (VPMADDWD). Products of an excess follow one by one.

Limits: ``rows`` <= M.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, computed, parameters, variables
from opbuild.backend.halide.epilogue import fused
from opbuild.families.matmul.halide import convert_left, tile_groups, tile_output
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

PAIR = 2
"""Neighbours along K whose products one instruction adds up, if it takes numbers of 16 bits. Of bytes it takes four."""


def define(desc: OpDesc) -> Definition:
    """Return the definition of a batched matrix product of bytes."""
    inputs = parameters(desc)
    lhs, rhs, *others = inputs
    beyond = (others.pop(0), others.pop(0)) if desc.attrs.get("excess") else None
    n, m = variables("n m")
    batch = variables("b0 b1")[: len(desc.outputs[0].dims) - 2]
    place = (n, m, *batch)
    own = batch[: rhs.dimensions() - 4]
    extent = lhs.dim(0).extent()
    group, panel = (dim.extent for dim in desc.inputs[1].dims[:2])
    halves = bool(desc.attrs.get("halves"))
    acc = hl.Func("acc")
    functions = {"acc": acc}

    left = lhs
    if group == PAIR:
        functions["left"] = left = hl.Func("left")
        (j,) = variables("j")
        left[(j, m, *batch)] = hl.i16(lhs[(j, m, *batch)])

    def product(number: Any, byte: Any, wide: Any = hl.i32) -> Any:
        right = rhs[(byte, n % panel, number, n // panel, *own)]
        right = hl.i16(right) if group == PAIR else right  # what the instruction for pairs multiplies
        return wide(left[(number * group + byte, m, *batch)]) * wide(right)

    k = hl.RDom([(0, group // PAIR if halves else group), (0, extent // group)], "k")
    rest = hl.RDom([(0, extent % group)], "rest")
    acc[place] = hl.i32(0)
    if halves:
        pair, number, byte = hl.Var("pair"), hl.Var("number"), hl.RDom([(0, PAIR)], "byte")
        functions["halves"] = sums = hl.Func("halves")
        at = (pair, number, *place)
        sums[at] = hl.i16(0)
        # That the addition saturates names the instruction: these sums fit.
        sums[at] = hl.saturating_add(sums[at], product(number, byte.x + PAIR * pair, hl.i16))
        acc[place] += hl.i32(sums[(k.x, k.y, *place)])
    else:
        acc[place] += product(k.y, k.x)
    acc[place] += product(extent // group, rest.x)
    domains = {"k": k, "rest": rest}
    if beyond is not None:
        places, excess = beyond
        domains["beyond"] = e = hl.RDom([(0, excess.dim(1).extent())], "beyond")
        row = hl.unsafe_promise_clamped(places[e.x, n // panel], 0, extent - 1)
        acc[place] += hl.i32(lhs[(row, m, *batch)]) * hl.i32(excess[n % panel, e.x, n // panel])
    value = fused(desc, others, place, acc[place])
    return computed(desc, inputs, place, value, functions, domains, dots=True)


LEAST_WIDENED = 32
"""Rows of the left operand from which on it pays to wake another thread to widen some of them."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a matrix product of bytes."""
    out, lanes = definition.outputs[0], machine.lanes
    rows, columns = desc.variant["rows"], desc.variant["panels"] * desc.inputs[1].dims[1].extent
    mo, _ = tile_output(definition, (rows, columns), lanes)
    acc = definition.functions["acc"].compute_at(out, mo)
    tile_groups(definition, rows, columns, lanes)
    if "beyond" in definition.domains:
        n, m, *_ = acc.args()
        acc.update(2).reorder(n, m, definition.domains["beyond"].x).vectorize(n, lanes).unroll(n).unroll(m)
    if "left" in definition.functions:
        convert_left(definition, 2 * lanes, LEAST_WIDENED)
    if "halves" in definition.functions:
        halves = definition.functions["halves"]
        pair, number, n, m, *batch = halves.args()
        halves.compute_at(acc, m).reorder_storage(pair, n, number, m, *batch)
        sum_in_halves(halves, (pair, n, number, m, *batch), columns, lanes)


def sum_in_halves(halves: Any, loops: Sequence[Any], columns: int, lanes: int) -> None:
    """Keep sums of two products of a row in registers; the first two of the loops are those over sums and columns."""
    pair, n, *_ = loops
    (byte,) = halves.rvars(0)
    halves.bound_extent(pair, PAIR).bound_extent(n, columns).vectorize(pair).vectorize(n, lanes).unroll(n)
    # Sums that saturate have an order; these do not saturate.
    update = halves.update().atomic(True).reorder(byte, *loops)
    update.vectorize(byte).vectorize(pair).vectorize(n, lanes).unroll(n)
