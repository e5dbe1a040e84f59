"""Attention: how it is computed: a block of queries at a time, their scores kept until their output is there.

Lanes are queries where scores are made: a key's elements are read one by one as they lie, and softmax needs nothing
across lanes. Lanes are a value's elements where values are added up. So no operand but the block's queries is moved.

Variant: ``block`` queries; ``keys``: keys whose scores are summed up at once; ``rows`` and ``columns``: the tile of
the output; ``chunk``: elements of keys and values that are looked at at once. Limits: ``keys`` <= J, ``columns`` <= E,
``chunk`` <= D and E.
"""

from __future__ import annotations

from functools import reduce
from operator import mul
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, variables
from opbuild.backend.halide.division import divide, share
from opbuild.backend.halide.rows import RANGES
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

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
    _tile(weighted, definition.domains["keys"].x, (rows, columns), min(lanes, columns))
    rows_of_keys = ("query", "score", "power", "weight", "greatest", "total", "factor")
    for name in (name for name in rows_of_keys if name in functions):
        function = functions[name].compute_at(out, at)
        _over_lanes(function, block, lanes)
        if function.has_update_definition() and name != "score":
            function.update().reorder(function.args()[0], definition.domains["keys"].x)
            function.update().vectorize(function.args()[0], lanes).unroll(function.args()[0])
    _scores(definition, (keys, block), lanes)
    if "seen" in functions:
        _over_lanes(functions["seen"].compute_at(out, at), block, lanes)
        functions["count"].compute_at(out, at)
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
    function.bound_extent(lane, block).vectorize(lane, lanes).unroll(lane).never_partition_all()


def _scores(definition: Definition, tile: tuple[int, int], lanes: int) -> None:
    """Make scores of a tile of keys and all rows of a block at once."""
    score, dot, size = (*(definition.functions[name] for name in ("score", "dot")), definition.domains["sizes"].x)
    lane, j, *_ = score.args()
    made = [dot]
    if "tiles" in definition.domains:
        key, some = definition.domains["tiles"].x, definition.domains["tiles"].y
        score.update().reorder(lane, key, some).vectorize(lane, lanes).unroll(lane).unroll(key)
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
    dot.update().reorder(lane, j, size).vectorize(lane, lanes).unroll(lane).unroll(j)


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
