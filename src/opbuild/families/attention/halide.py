"""Attention.

``score[j, i] = epilogue(sum over d of q[d, i] * k[j, d])``, ``out[e, i] = sum over j of weight[j, i] * v[e, j]``, where
``weight[., i]`` is the softmax of ``score[., i]``, as many times as there are batches. The attribute ``epilogue`` is an
expression over the sum and the operands after ``v``, each of a score's rank ``(j, i, ...)``; a stride of 0 repeats. If
there is an attribute ``rounds``, weights and results are rounded to the numbers of this type of 16 bits; if there is
``zeros``, it says which weights are 0 instead of NaN.

The attribute ``seen`` is an expression over operands that do not depend on j: how many keys, the first ones, a query
sees. The epilogue, which has two more operands, j and this number, hides the others. So a block of queries leaves out
keys that none of them sees, unless a query sees none at all, or something in keys or values is not finite: then what is
hidden shows in the result. With ``since``, how many of those keys, the first ones, a query's window hides, it leaves
out those before the windows of all of its queries, too.

The attributes ``bound`` and ``start`` are such expressions, too: behind and before which value all are zeros, in place
of what is there: the room of a cache, and what lies before the window of the first query, may be anything, and is read
by nobody. Where they are the same as ``seen`` and ``since``, nothing is hidden that could show.

Special values come out as those of the two products and the softmax one by one: a row of scores that holds NaN or +inf,
or -inf only, makes its output NaN, unless ``zeros`` says otherwise. The powers are a power of two smaller than the
softmax has them, so that their sum is at most 1 and a sum of values overflows no earlier than with weights; dividing by
their sum takes it away exactly. Weights that are rounded are divided first.

Schedule: a block of queries at a time, their scores kept until their output is there.

Lanes are queries where scores are made: a key's elements are read one by one as they lie, and softmax needs nothing
across lanes. Lanes are a value's elements where values are added up. So no operand but the block's queries is moved.

Variant: ``block`` queries; ``keys``: keys whose scores are summed up at once; ``rows`` and ``columns``: the tile of
the output; ``chunk``: elements of keys and values that are looked at at once. Limits: ``keys`` <= J, ``columns`` <= E,
``chunk`` <= D and E.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import Any

import halide as hl

from opbuild.backend.halide.conversions import round_result
from opbuild.backend.halide.definition import Definition, computed, parameters, variables
from opbuild.backend.halide.division import divide, share
from opbuild.backend.halide.expression import compile_expression
from opbuild.backend.halide.rows import RANGES
from opbuild.backend.halide.transcendental import exp_below_zero
from opbuild.backend.halide.zeros import INFINITE, inverse, least, powered, shown
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json
from opbuild.target.machine import Machine

FUNCTIONS = ("query", "dot", "score", "greatest", "power", "total", "factor", "weighted")
OF_SEEN = ("seen", "masked", "count", "largest", "partly")
ENDS = (("seen", "bound"), ("since", "start"))
"""What schedules find; Halide gives the same name another number where it was given before."""


def define(desc: OpDesc) -> Definition:
    """Return the definition of an attention."""
    inputs, has_seen = parameters(desc), "seen" in desc.attrs
    of_seen = (*OF_SEEN[: None if _may_show(desc) else -2], *_windows(desc)) if has_seen else ()
    q, k, v, *others = inputs
    e, i, j, d, nth, *batch = variables("e i j d nth b0 b1 b2")
    rows, extent = q.dim(1).extent(), k.dim(0).extent()
    keys, sizes = hl.RDom([(0, extent)], "keys"), hl.RDom([(0, q.dim(0).extent())], "sizes")
    domains = {"keys": keys, "sizes": sizes, "values": keys}
    functions = {name: hl.Func(name) for name in (*FUNCTIONS, *of_seen)}
    query, dot, score, greatest, power, total, factor, weighted = (functions[name] for name in FUNCTIONS)
    # A block has rows beyond the last one, which nobody stores: they are the last one once more.
    inside = hl.clamp(i, 0, rows - 1)
    # What depends on the block of a row has the block's number as an argument.
    near = (nth, *batch) if has_seen else tuple(batch)
    row, place = (i, *near), (i, j, *near)
    query[(i, d, *near)] = q[(d, inside, *batch)]
    dot[place] = hl.f32(0)
    dot[place] += query[(i, sizes.x, *near)] * k[(j, sizes.x, *batch)]
    operands = [other[(j, inside, *batch)] for other in others]
    if has_seen:
        domains["tiles"], domains["values"] = _count(desc, functions, inputs, (i, nth, *batch), keys)
        operands += [hl.Expr(j), hl.Expr(functions["seen"][row])]
    scored = shown(desc, compile_expression(from_json(desc.attrs["epilogue"]), operands, place, hl.Expr(dot[place])))
    nearest = powers = (i, keys.x, *near)
    if has_seen:
        # Where keys are left out nothing is stored.
        tiles, masked = domains["tiles"], functions["masked"]
        key = hl.min(tiles.y * int(desc.variant["keys"]), extent - int(desc.variant["keys"])) + tiles.x
        masked[place] = scored
        score[place] = power[place] = hl.undef(hl.Float(32))
        score[(i, key, *near)] = masked[(i, key, *near)]
    else:
        score[place], powers = scored, place
    greatest[row] = least(desc)
    greatest[row] = hl.max(greatest[row], score[nearest])
    shifted = hl.strict_float(score[powers] - hl.Expr(greatest[row]))
    power[powers] = powered(desc, shifted, exp_below_zero(shifted)) * _scale(extent)
    total[row] = hl.f32(0)
    total[row] += power[nearest]
    factor[row] = inverse(desc, hl.Expr(total[row]))
    weight = power
    if "rounds" in desc.attrs:
        weight = functions["weight"] = _rounded(desc, power[place] * factor[row], place, powers)
    weighted[(e, *row)] = hl.f32(0)
    there = domains["values"].x
    weighted[(e, *row)] += weight[(i, there, *near)] * v[(e, there, *batch)]
    of_row = (i, i // int(desc.variant["block"]), *batch) if has_seen else row
    result = weighted[(e, *of_row)] if "rounds" in desc.attrs else weighted[(e, *of_row)] * factor[of_row]
    return computed(desc, inputs, (e, i, *batch), round_result(desc, result, (e, i, *batch)), functions, domains)


def _rounded(desc: OpDesc, weight: Any, place: tuple[Any, ...], stored: tuple[Any, ...]) -> Any:
    """Return the function of rounded weights; those at ``stored``, an index like ``place``, are all that it has."""
    function, every = hl.Func("weight"), hl.Func("rounded_weight")
    every[place] = round_result(desc, weight, place)
    if stored is not place:
        function[place] = hl.undef(hl.Float(32))
    function[stored] = every[stored]
    return function


def _scale(keys: Any) -> Any:
    """Return the inverse of the least power of two that is more than the number of keys."""
    digits = hl.i32(32) - hl.cast(hl.Int(32), hl.count_leading_zeros(keys))
    return hl.reinterpret(hl.Float(32), (hl.i32(127) - digits) << 23)


def _count(
    desc: OpDesc, functions: dict[str, Any], inputs: list[Any], variables: tuple[Any, ...], keys: Any
) -> tuple[Any, Any]:
    """Define from which to which key a block's scores are made, to which those of a domain are limited.

    Return the domain of scores, ``keys`` at once, and the one of keys whose values are not zeros.
    """
    (q, k, _, *others), (i, nth, *batch) = inputs, variables
    rows, extent = q.dim(1).extent(), k.dim(0).extent()
    block, together = int(desc.variant["block"]), int(desc.variant["keys"])
    within, near = hl.RDom([(0, block)], "within"), (nth, *batch)
    of_rows, held = dict[str, Any](), dict[str, Any]()
    for (name, end), whole in zip(ENDS, (extent, hl.i32(0)), strict=True):
        if name in desc.attrs:
            function, row = functions[name], (i, nth, *batch)
            function[row] = _number(desc, name, others, extent, (hl.clamp(i, 0, rows - 1), *batch), row)
            of_rows[name] = hl.Expr(function[(nth * block + within.x, *near)])
        has_end = end in desc.attrs
        held[end] = _number(desc, end, others, extent, (0, *batch), near) if has_end else whole
    leaves_out = hl.minimum(of_rows["seen"] - of_rows.get("since", hl.i32(0))) > 0
    if "largest" in functions:
        _find_largest(desc, functions, inputs, batch)
        leaves_out = (hl.Expr(functions["largest"][batch]) < hl.u32(INFINITE)) & leaves_out
    most, is_bounded = hl.maximum(of_rows["seen"]), "bound" in desc.attrs
    # Scores of keys behind the bound count if some query sees them, though their values are zeros.
    every = hl.max(most, held["bound"]) if is_bounded else extent
    functions["count"][near] = hl.select(leaves_out, most if is_bounded else hl.max(most, together), every)
    count, first = hl.Expr(functions["count"][near]), hl.i32(0)
    if "since" in of_rows:
        fewest = hl.minimum(of_rows["since"])
        functions["first"][near] = hl.select(leaves_out, fewest, hl.min(fewest, held["start"]))
        first = hl.Expr(functions["first"][near])
    tiles = hl.RDom([(0, together), (0, (extent + (together - 1)) // together)], "tiles")
    tiles.where(tiles.y * together < count)
    keys.where(keys.x < count)
    if "since" in of_rows:
        tiles.where(tiles.y * together + together > first)
        keys.where(keys.x >= first)
    if all(desc.attrs.get(end, desc.attrs.get(name)) == desc.attrs.get(name) for name, end in ENDS):
        return tiles, keys
    values = hl.RDom([(0, extent)], "values")
    values.where(values.x < hl.min(count, held["bound"]))
    if "since" in of_rows or "start" in desc.attrs:
        values.where(values.x >= hl.max(first, held["start"]))
    return tiles, values


def _windows(desc: OpDesc) -> tuple[str, ...]:
    """Return the functions that say where windows begin."""
    return ("since", "first") if "since" in desc.attrs else ()


def _may_show(desc: OpDesc) -> bool:
    """Return whether a hidden key may show in the result: not if every query sees all that there are."""
    return any(desc.attrs.get(name) != desc.attrs.get(end) for name, end in ENDS)


def _number(desc: OpDesc, name: str, others: Sequence[Any], keys: Any, row: Sequence[Any], place: Sequence[Any]) -> Any:
    """Return a number of keys, of an attribute, for a row of the operands: at least none, at most all."""
    operands = [other[(0, *row)] for other in others]
    number = compile_expression(from_json(desc.attrs[name]), operands, tuple(place))
    return hl.cast(hl.Int(32), hl.clamp(number, 0, hl.cast(number.type(), keys)))


def _find_largest(desc: OpDesc, functions: dict[str, Any], inputs: list[Any], batch: list[Any]) -> None:
    """Define the greatest bits, but for the sign, of all keys and values of a batch."""
    (_, k, v, *others), lane, chunk = inputs, hl.Var("lane"), int(desc.variant["chunk"])
    partly, largest = functions["partly"], functions["largest"]
    partly[(lane, *batch)] = hl.u32(0)
    for operand, axis in ((k, 1), (v, 0)):
        extent = operand.dim(axis).extent()
        r = hl.RDom([(0, (extent + (chunk - 1)) // chunk), (0, k.dim(0).extent())])
        if "bound" in desc.attrs:
            r.where(r.y < _number(desc, "bound", others, k.dim(0).extent(), (0, *batch), (lane, *batch)))
        if "start" in desc.attrs:
            r.where(r.y >= _number(desc, "start", others, k.dim(0).extent(), (0, *batch), (lane, *batch)))
        element = hl.min(r.x * chunk, extent - chunk) + lane
        bits = hl.reinterpret(hl.UInt(32), operand[(*((r.y, element) if axis else (element, r.y)), *batch)])
        partly[(lane, *batch)] = hl.max(partly[(lane, *batch)], bits & hl.u32(0x7FFFFFFF))
    largest[batch] = hl.maximum(partly[(hl.RDom([(0, chunk)]).x, *batch)])


GUARD, SHIFT = hl.TailStrategy.GuardWithIf, hl.TailStrategy.ShiftInwards


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule an attention."""
    out, functions, lanes = definition.outputs[0], definition.functions, machine.lanes
    block, keys, rows, columns = (desc.variant[name] for name in ("block", "keys", "rows", "columns"))
    e, i, *batch = definition.variables.values()
    of_block, eo, ei, ii, ir = variables("of_block eo ei ii ir")
    out.split(i, of_block, ii, block, GUARD).split(ii, ii, ir, rows, GUARD).split(e, eo, ei, columns, SHIFT)
    out.reorder(ei, ir, ii, eo, of_block, *batch)
    at = _divide(definition, of_block, block, batch)
    out.vectorize(ei, min(lanes, columns)).unroll(ei).unroll(ir).never_partition_all()
    weighted = functions["weighted"].compute_at(out, ii)
    _tile(weighted, definition.domains["values"].x, (rows, columns), min(lanes, columns))
    rows_of_keys = ("query", "score", "power", "weight", "greatest", "total", "factor")
    for name in (name for name in rows_of_keys if name in functions):
        function = functions[name].compute_at(out, at)
        _over_lanes(function, block, lanes)
        if function.has_update_definition() and name != "score":
            function.update().reorder(function.args()[0], definition.domains["keys"].x)
            function.update().vectorize(function.args()[0], min(block, lanes)).unroll(function.args()[0])
    _scores(definition, (keys, block), lanes)
    if "seen" in functions:
        for name in ("seen", "since"):
            if name in functions:
                _over_lanes(functions[name].compute_at(out, at), block, lanes)
        for name in ("count", "first"):
            if name in functions:
                functions[name].compute_at(out, at)
        if "largest" in functions:
            _look_through(definition, desc.variant["chunk"])
        for function in functions.values():
            for variable in function.args():
                if variable.name() == "nth":
                    function.bound_extent(variable, 1)


def _divide(definition: Definition, of_block: Any, block: int, batch: list[Any]) -> Any:
    """Divide the blocks of all batches among tasks; return the loop over those of a task."""
    out, tasks = definition.outputs[0], definition.tasks
    rows, *batches = (out.output_buffer().dim(axis).extent() for axis in range(1, 2 + len(batch)))
    blocks = reduce(mul, batches, (rows + (block - 1)) // block)
    flat = _fused(out, [of_block, *batch])
    task, at = variables("task at")
    out.split(flat, task, at, share(blocks, hl.select(tasks == 1, 1, RANGES * tasks)), GUARD)
    out.parallel(task)
    return at


def _fused(function: Any, loops: list[Any]) -> Any:
    """Make one loop of several, and return it."""
    flat, *rest = loops
    for number, outer in enumerate(rest):
        into = hl.Var(f"flat{number}")
        function.fuse(flat, outer, into)
        flat = into
    return flat


def _over_lanes(function: Any, block: int, lanes: int) -> None:
    """Compute a function of a block's rows, its first argument, in vectors of them."""
    lane = function.args()[0]
    function.bound_extent(lane, block).vectorize(lane, min(block, lanes)).unroll(lane).never_partition_all()


def _scores(definition: Definition, tile: tuple[int, int], lanes: int) -> None:
    """Make scores of a tile of keys and all rows of a block at once."""
    score, dot, size = (*(definition.functions[name] for name in ("score", "dot")), definition.domains["sizes"].x)
    lane, j, *_ = score.args()
    made = [dot]
    if "tiles" in definition.domains:
        key, some = definition.domains["tiles"].x, definition.domains["tiles"].y
        score.update().reorder(lane, key, some).vectorize(lane, min(tile[1], lanes)).unroll(lane).unroll(key)
        # On its own it is computed where the score is; inside the score Halide computes the sums of hidden keys, too.
        made.append(definition.functions["masked"])
    else:
        some = hl.Var("some")
        score.split(j, some, j, tile[0], SHIFT).reorder(lane, j, some).unroll(j)
    for function in made:
        lane, j, *_ = function.args()
        function.compute_at(score, some).bound_extent(j, tile[0]).unroll(j)
        _over_lanes(function, tile[1], lanes)
    lane, j, *_ = dot.args()
    dot.update().reorder(lane, j, size).vectorize(lane, min(tile[1], lanes)).unroll(lane).unroll(j)


def _look_through(definition: Definition, chunk: int) -> None:
    """Look at the keys and values of each batch once, before all blocks."""
    largest, partly = definition.functions["largest"].compute_root(), definition.functions["partly"]
    extents = [definition.outputs[0].output_buffer().dim(axis).extent() for axis in range(2, 2 + len(largest.args()))]
    flat = _fused(largest, largest.args())
    divide(largest, flat, reduce(mul, extents), hl.select(definition.tasks == 1, 1, RANGES * definition.tasks))
    lane = partly.args()[0]
    partly.compute_at(largest, flat).bound_extent(lane, chunk).vectorize(lane)
    for number in range(2):
        partly.update(number).vectorize(lane)


def _tile(function: Any, domain: Any, tile: tuple[int, int], lanes: int) -> None:
    """Keep a tile of sums in registers while keys pass."""
    e, i, *_ = function.args()
    function.bound_extent(i, tile[0]).bound_extent(e, tile[1])
    function.vectorize(e, lanes).unroll(e).unroll(i).never_partition_all()
    function.update().reorder(e, i, domain).vectorize(e, lanes).unroll(e).unroll(i)
