"""Attention: how it is computed: a block of queries at a time, their scores kept until their output is there.

Lanes are queries where scores are made: a key's elements are read one by one as they lie, and softmax needs nothing
across lanes. Lanes are a value's elements where values are added up. So no operand but the block's queries is moved.

Variant: ``block`` queries; ``keys``: keys whose scores are summed up at once; ``rows`` and ``columns``: the tile of
the output. Limits: ``keys`` <= J, ``columns`` <= E.
"""

from __future__ import annotations

from functools import reduce
from operator import mul
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, variables
from opbuild.backend.halide.division import share
from opbuild.backend.halide.rows import RANGES
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc

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
    for function in (function for name, function in functions.items() if name not in ("dot", "weighted")):
        function.compute_at(out, at)
        lane = function.args()[0]
        function.bound_extent(lane, block).vectorize(lane, lanes).unroll(lane).never_partition_all()
        if function.has_update_definition():
            function.update().reorder(lane, definition.domains["keys"].x).vectorize(lane, lanes).unroll(lane)
    _scores(functions, definition.domains["sizes"].x, (keys, block), lanes)


def _divide(definition: Definition, of_block: Any, block: int, batch: list[Any]) -> Any:
    """Divide the blocks of all batches among tasks; return the loop over those of a task."""
    out, tasks = definition.outputs[0], definition.tasks
    rows, *batches = (out.output_buffer().dim(axis).extent() for axis in range(1, 2 + len(batch)))
    blocks = reduce(mul, batches, (rows + (block - 1)) // block)
    flat = of_block
    for number, outer in enumerate(batch):
        into = hl.Var(f"flat{number}")
        out.fuse(flat, outer, into)
        flat = into
    task, at = variables("task at")
    out.split(flat, task, at, share(blocks, hl.select(tasks == 1, 1, RANGES * tasks)), GUARD)
    out.parallel(task)
    return at


def _scores(functions: dict[str, Any], size: Any, tile: tuple[int, int], lanes: int) -> None:
    score, dot = functions["score"], functions["dot"]
    lane, j, *_ = score.args()
    some = hl.Var("some")
    score.split(j, some, j, tile[0], SHIFT).reorder(lane, j, some).unroll(j)
    dot.compute_at(score, some)
    lane, j, *_ = dot.args()
    dot.bound_extent(lane, tile[1]).bound_extent(j, tile[0])
    dot.vectorize(lane, lanes).unroll(lane).unroll(j).never_partition_all()
    dot.update().reorder(lane, j, size).vectorize(lane, lanes).unroll(lane).unroll(j)


def _tile(function: Any, domain: Any, tile: tuple[int, int], lanes: int) -> None:
    """Keep a tile of sums in registers while keys pass."""
    e, i, *_ = function.args()
    function.bound_extent(i, tile[0]).bound_extent(e, tile[1])
    function.vectorize(e, lanes).unroll(e).unroll(i).never_partition_all()
    function.update().reorder(e, i, domain).vectorize(e, lanes).unroll(e).unroll(i)
