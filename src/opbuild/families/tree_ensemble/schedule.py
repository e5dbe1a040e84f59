"""The schedule of trees: blocks of ``lanes`` rows, or with one lane groups of trees, in ranges divided among the tasks.

Trees are taken one after the other, and all blocks of a range pass each, so that its records stay in the first-level
cache; keys of a range are made once and stay in the second-level cache. A step of a path waits for two loads. What
keeps a core busy meanwhile are the steps of others: they are a loop inside that over steps, whose iterations a core has
under way together. It is neither unrolled nor vectorised: LLVM makes gathers of it, which take 1.5 of the time on Zen
4. Variant: ``lanes``. No limits.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, variables
from opbuild.backend.halide.division import share
from opbuild.backend.halide.rows import RANGES
from opbuild.families.tree_ensemble.layout import GROUP
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

MOST_ROWS = 512
"""Rows of a range at most."""

KEYS = 4
"""Part of the second-level cache that the keys of a range may fill: a quarter."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule an ensemble."""
    if desc.variant["lanes"] == 1:
        _by_trees(definition)
    else:
        _by_rows(definition, desc, machine)


def _by_rows(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Take blocks of rows."""
    (out,), lanes, functions = definition.outputs, int(desc.variant["lanes"]), definition.functions
    row, task = definition.variables["row"], hl.Var("task")
    columns = definition.inputs[0].dim(0).extent() * (2 if desc.attrs["sides"] else 1)
    rows = out.output_buffer().dim(2).extent()
    fitting = machine.l2 // KEYS // (hl.max(columns, 1) * (4 if desc.inputs[0].dtype == "float32" else 8))
    longest = hl.clamp(fitting // lanes, 1, MOST_ROWS // lanes)
    wanted = hl.select(definition.tasks == 1, 1, RANGES * definition.tasks)
    length = lanes * hl.min(longest, share((rows + lanes - 1) // lanes, wanted))
    out.split(row, task, row, length, hl.TailStrategy.GuardWithIf).parallel(task)
    for name in ("key", "total"):
        lane = functions[name].args()[0 if name == "key" else 2]
        functions[name].compute_at(out, task).bound_extent(lane, lanes).never_partition_all()
    total, each = functions["total"], definition.domains["each"].x
    w, g, lane, block = total.args()
    total.reorder_storage(lane, w, g, block).reorder(lane, w, g, block).vectorize(lane, machine.lanes)
    reached, step = functions["reached"], definition.domains["steps"].x
    own = reached.args()[0]
    reached.compute_at(total, block).bound_extent(own, lanes).vectorize(own, machine.lanes)
    reached.update().reorder(own, step)
    if desc.attrs["kind"] == "bits":
        total.update().reorder(lane, w, block, each).vectorize(lane, machine.lanes)
        reached.unroll(own).update().vectorize(own, machine.lanes).unroll(own)
    else:
        total.update().reorder(lane, w, block, each)
    out.never_partition_all()


def _by_trees(definition: Definition) -> None:
    """Take groups of trees, and add up their leaves in the order of the trees."""
    (out,), functions = definition.outputs, definition.functions
    reached, step = functions["reached"], definition.domains["steps"].x
    _, block, t = reached.args()
    group, within, task = variables("group within task")
    trees = definition.inputs[2].dim(1).extent()
    functions["key"].compute_root()
    # Without vectors: they round the extent up, for the update too, which would walk trees that there are not.
    reached.compute_root()
    wanted = hl.select(definition.tasks == 1, 1, RANGES * definition.tasks)
    length = share((trees + GROUP - 1) // GROUP, wanted)
    stage = reached.update().split(t, group, within, GROUP, hl.TailStrategy.GuardWithIf)
    stage.split(group, task, group, length, hl.TailStrategy.GuardWithIf)
    stage.reorder(within, step, group, block, task).parallel(task)
    total = functions["total"]
    total.compute_at(out, definition.variables["row"])
    total.update().reorder(total.args()[0], definition.domains["each"].x)
