"""Tree ensembles: the leaf that a row reaches in each tree, and the leaves' sum.

Operands with ``kind`` ``paths``: ``x (features, rows)``, ``records (3, places)``, ``trees (5, trees)``, ``depths
(groups of trees)``, ``weights (width, leaves)``, ``base (width, targets)``, ``out (width, targets, rows)``. A record is
a split's key, its column and the place of the record to the left, behind which the one to the right stands; of a leaf,
``LEAF`` and the leaf's number, 0, and its own place, so that whoever has arrived stays. A tree is the place of its
first record, its depth, its target and its place in another order, in which trees of much the same depth are
neighbours, and with it the first record of the one that has the tree's own place in that order; ``depths`` are those of
groups in that order.

With ``bits``: ``x``, ``rules (3, rules)``, ``pieces (3, pieces)``, ``weights (width, BITS, pieces)``, ``base``,
``out``. A piece is a tree of at most ``BITS`` leaves: its first rule, the one behind its last, and its target. A row
that is above a rule's key keeps only the leaves in the rule's mask; of those that all rules leave, it reaches the
first.

Keys are integers that sort as the elements of x do. A feature has two columns if ``sides``: NaN is above all numbers in
the first and below all in the second. Records and rules of float64 have keys of 64 bits, and the other two numbers in
one of as many. ``aggregate`` ``sum``, ``min`` or ``max`` says what is made of the weights of a target: ``out (w, t)``
has those of the trees of target t, of all trees if not ``targets``, and base is added. Of ``min`` and ``max`` the
greatest and the least finite number say that a leaf has no weight, and are 0 in the output.

Schedule: blocks of ``lanes`` rows, or with one lane groups of trees, in ranges divided among the tasks.

Trees are taken one after the other, and all blocks of a range pass each, so that its records stay in the first-level
cache; keys of a range are made once and stay in the second-level cache. A step of a path waits for two loads. What
keeps a core busy meanwhile are the steps of others: they are a loop inside that over steps, whose iterations a core has
under way together. It is neither unrolled nor vectorised: LLVM makes gathers of it, which take 1.5 of the time on Zen
4. Variant: ``lanes``. No limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import TYPES, Definition, computed, parameters, variables
from opbuild.backend.halide.division import share
from opbuild.backend.halide.rows import RANGES
from opbuild.families.tree_ensemble.layout import BELOW, BITS, GROUP, LEAF, MOST
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

MOST_STEPS = 1 << 30
"""More than any loop has; how many it has is said by its condition."""


def define(desc: OpDesc) -> Definition:
    """Return the definition of an ensemble."""
    inputs = parameters(desc)
    return _Ensemble(desc, inputs).bits() if desc.attrs["kind"] == "bits" else _Ensemble(desc, inputs).paths()


@dataclass
class _Ensemble:
    """One kernel of the family; see the module."""

    desc: OpDesc
    inputs: list[Any]

    def __post_init__(self) -> None:
        self.dtype = self.desc.inputs[0].dtype
        self.lanes = int(self.desc.variant["lanes"])
        self.key = hl.Func("key")
        lane, column, block = variables("lane column block")
        x, sides = self.inputs[0], 2 if self.desc.attrs["sides"] else 1
        row = hl.clamp(block * self.lanes + lane, 0, x.dim(1).extent() - 1)
        self.key[lane, column, block] = _key(x[column // sides, row], self.dtype, column % sides if sides == 2 else 0)

    def paths(self) -> Definition:
        """Return the definition of rows that walk down trees."""
        _, records, trees, depths, weights, _ = self.inputs
        lane, block, t = variables("lane block t")
        last_tree, last_record = trees.dim(1).extent() - 1, records.dim(1).extent() - 1

        def walked(tree: Any) -> Any:
            return hl.unsafe_promise_clamped(trees[3, tree], 0, last_tree)

        # Where trees are walked side by side, t is the place in their order; else the tree's own in the model.
        place = hl.Func("place")
        place[lane, block, t] = trees[4 if self.lanes == 1 else 0, t]
        step = hl.RDom([(0, MOST_STEPS)], "step")
        step.where(step.x < (depths[t // GROUP] if self.lanes == 1 else trees[1, t]))
        here = hl.unsafe_promise_clamped(hl.Expr(place[lane, block, t]), 0, last_record)
        key, column, left = self._parts(records, here)
        above = hl.cast(hl.Int(32), hl.Expr(self.key[lane, self._column(column), block]) > key)
        place[lane, block, t] = left + above + (step.x - step.x)  # which makes the loop one of the update

        def leaf(lane: Any, block: Any, tree: Any) -> Any:
            at = hl.Expr(place[lane, block, walked(tree) if self.lanes == 1 else tree])
            key = records[0, hl.unsafe_promise_clamped(at, 0, last_record)]
            number = hl.cast(hl.Int(32), key - _whole(LEAF[self.dtype], self.dtype))
            return (hl.unsafe_promise_clamped(number, 0, weights.dim(1).extent() - 1),)

        made = self._summed(last_tree + 1, leaf, lambda tree: trees[2, tree])
        made.functions["reached"] = place
        made.domains["steps"] = step
        return made

    def bits(self) -> Definition:
        """Return the definition of rows for which leaves of pieces are struck out."""
        _, rules, pieces, _, _ = self.inputs
        lane, block, t = variables("lane block t")
        left = hl.Func("left")
        left[lane, block, t] = hl.u32(0xFFFFFFFF)
        step = hl.RDom([(0, MOST_STEPS)], "step")
        step.where(step.x < pieces[1, t] - pieces[0, t])
        rule = hl.unsafe_promise_clamped(pieces[0, t] + step.x, 0, rules.dim(1).extent() - 1)
        key, column, kept = self._parts(rules, rule)
        before = hl.Expr(left[lane, block, t])
        is_above = hl.Expr(self.key[lane, self._column(column), block]) > key
        left[lane, block, t] = hl.select(is_above, before & hl.reinterpret(hl.UInt(32), kept), before)

        def leaf(lane: Any, block: Any, piece: Any) -> Any:
            first = hl.cast(hl.Int(32), hl.count_trailing_zeros(hl.Expr(left[lane, block, piece])))
            return (hl.unsafe_promise_clamped(first, 0, BITS - 1), piece)

        made = self._summed(pieces.dim(1).extent(), leaf, lambda piece: pieces[2, piece])
        made.functions["reached"] = left
        made.domains["steps"] = step
        return made

    def _column(self, column: Any) -> Any:
        count = self.inputs[0].dim(0).extent() * (2 if self.desc.attrs["sides"] else 1)
        return hl.unsafe_promise_clamped(column, 0, count - 1)

    def _parts(self, table: Any, at: Any) -> tuple[Any, Any, Any]:
        """Return the key of a record or a rule, and its two numbers of 32 bits."""
        if self.dtype == "float32":
            return table[0, at], table[1, at], table[2, at]
        both = table[1, at]
        return table[0, at], hl.cast(hl.Int(32), both), hl.cast(hl.Int(32), both >> 32)

    def _summed(self, count: Any, leaf: Any, target_of: Any) -> Definition:
        """Return the definition of the sum of leaves.

        Args:
            count: How many trees or pieces there are.
            leaf: Returns the place of the leaf that a row, by lane and block, has reached in one, in the weights.
            target_of: Returns the target of one.
        """
        (*_, weights, base), output = self.inputs, self.desc.outputs[0]
        kind, aggregate = TYPES[output.dtype], self.desc.attrs["aggregate"]
        w, g, lane, block, row = variables("w g lane block row")
        total = hl.Func("total")
        most = _literal(MOST[output.dtype], output.dtype)
        neutral = {"sum": hl.cast(kind, 0), "min": most, "max": -most}[aggregate]
        each = hl.RDom([(0, count)], "each")
        target = (
            hl.unsafe_promise_clamped(target_of(each.x), 0, base.dim(1).extent() - 1)
            if self.desc.attrs["targets"]
            else 0
        )
        total[w, g, lane, block] = neutral
        weight = weights[(w, *leaf(lane, block, each.x))]
        before = hl.Expr(total[w, target, lane, block])
        combined = {"sum": lambda: before + weight, "min": lambda: hl.min(before, weight),
                    "max": lambda: hl.max(before, weight)}  # fmt: skip
        total[w, target, lane, block] = combined[aggregate]()
        found = hl.Expr(total[w, g, row % self.lanes, row // self.lanes])
        found = found if aggregate == "sum" else hl.select(found == neutral, hl.cast(kind, 0), found)
        functions = {"key": self.key, "total": total}
        return computed(self.desc, self.inputs, (w, g, row), found + base[w, g], functions, {"each": each})


def _key(x: Any, dtype: str, side: Any) -> Any:
    """Return the integer that sorts as an element does; NaN is above all others, or below if ``side``."""
    kind = hl.Int(TYPES[dtype].bits())
    bits = hl.reinterpret(kind, x)
    size = bits & kind.max()
    sorted_ = hl.select(bits < hl.cast(kind, 0), -size, size)
    is_nan = size > _whole(LEAF[dtype] - 2, dtype)
    above = _whole(LEAF[dtype] - 1, dtype)
    if isinstance(side, int):
        return hl.select(is_nan, above, sorted_)
    return hl.select(is_nan, hl.select(side == 0, above, _whole(BELOW[dtype], dtype)), sorted_)


def _whole(value: int, dtype: str) -> Any:
    """Return a key; those of 64 bits do not fit Python's way to Halide."""
    if dtype == "float32":
        return hl.i32(value)
    return (hl.cast(hl.Int(64), value >> 32) << 32) | hl.cast(hl.Int(64), hl.cast(hl.UInt(32), value & 0xFFFFFFFF))


def _literal(value: float, dtype: str) -> Any:
    return hl.f32(value) if dtype == "float32" else hl.f64(value)


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
