"""Random expression trees: what is fused gives the bits that numpy gives one operation after another.

Bounded here; ``OPBUILD_FUZZ=5000`` tries so many, beginning at a seed that it prints. ``OPBUILD_SEED`` repeats one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

import pytest

from exact_arithmetic import Array
from expression_trees import Died, Reference, Tree, compiled, differences, levels, shrunk, tree
from fuzzing import CAMPAIGN

LEVELS = levels()
TREES = (CAMPAIGN or 36) // len(LEVELS)
START = int(os.environ.get("OPBUILD_SEED", "0")) or (int(time.time()) * 1000 if CAMPAIGN else 1)
BATCH = 12


def problem(one: Tree, target: str, values: Sequence[Array] | None = None) -> str:
    """Return what is wrong with a tree's values, in words; nothing if they are right."""
    try:
        expected = Reference(target).values(one)[one.expression]
        got = values[0] if values else compiled([one], target)[0]
    except Died as error:
        return f"{one.expression} refined={one.refined} for {target}: {error}"
    wrong = differences(got, expected)
    operands = [str(x.dtype) for x in one.args]
    lines = [f"  {[f'{x[k]!r}' for x in one.args]} -> {got[k]!r}, not {expected[k]!r}" for k in wrong[:4].tolist()]
    about = f"{one.expression} of {operands} refined={one.refined} for {target}: {wrong.size} wrong"
    return "\n".join((about, *lines)) if wrong.size else ""


def together(trees: Sequence[Tree], target: str) -> list[Sequence[Array] | None]:
    """Return the values of each tree, compiled together; None for all if that process died."""
    try:
        return [[values] for values in compiled(trees, target)]
    except Died:
        return [None] * len(trees)


@pytest.mark.parametrize("level", LEVELS)
def test_random_trees_give_what_their_operations_give_one_by_one(level: str) -> None:
    """All operations, types and special values, for every level of instructions that this machine runs."""
    target, failures = LEVELS[level], {}
    first = START + 10_000_000 * list(LEVELS).index(level)
    for start in range(first, first + TREES, BATCH):
        seeds = range(start, min(start + BATCH, first + TREES))
        trees = [tree(seed) for seed in seeds]
        for seed, one, values in zip(seeds, trees, together(trees, target), strict=True):
            if problem(one, target, values):
                smallest = shrunk(one, lambda each: bool(problem(each, target)), Reference(target).values)
                failures[smallest.expression] = f"seed {seed}: {problem(smallest, target)}"
    if CAMPAIGN:
        print(f"\n{level}: {TREES} trees from seed {first}, {len(failures)} wrong", file=sys.__stderr__)
    assert not failures, f"{len(failures)} wrong\n" + "\n".join(failures.values())
