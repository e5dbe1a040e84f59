"""Random expression trees: what is fused gives the bits that numpy gives one operation after another.

Bounded here; ``OPBUILD_FUZZ=5000`` tries so many, from a seed that it prints on. ``OPBUILD_FUZZ_SEED`` repeats one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import count, islice

import numpy as np
import pytest

from kernels.harness import run_program
from opbuild.backend.host.evaluate import evaluate
from opbuild.graph.passes.pipeline import optimize
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.operations.evaluation import evaluate_expression
from opbuild.operations.expression import Expression, arg, children, rebuild, walk
from opbuild.target.host import host_level
from support.exact_arithmetic import Array, apply, cast, is_exact
from support.expression_trees import (
    LENGTH,
    Died,
    Reference,
    Tree,
    as_graph,
    compiled,
    differences,
    is_alive,
    levels,
    shrunk,
    tree,
)
from support.fuzzing import CAMPAIGN, SEED, check_seeds

LEVELS = levels()
TREES = (CAMPAIGN or 24) // len(LEVELS)
BATCH = 12


def problem(one: Tree, target: str, values: Sequence[Array] | None = None) -> str:
    """Return the problem of a tree's values, in words; empty if they are right."""
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
    first = SEED + 10_000_000 * list(LEVELS).index(level)
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


@pytest.mark.slow
def test_networks_of_trees_give_what_their_operations_give_one_by_one() -> None:
    """Passes that fuse, fold and choose kernels change no bit either; numbers that are not literals become operands."""
    options = {mode: Options(impl_mode=mode) for mode in ("high_performance", "high_precision")}
    reference = Reference(LEVELS[host_level().name])
    alive = (one for one in map(tree, count(SEED + 90_000_000)) if is_alive(one))
    for one in islice(alive, CAMPAIGN // 20 or 6):
        graph, feeds = as_graph(one)
        mode = "high_precision" if one.refined else "high_performance"
        program = lower(optimize(graph, evaluate), host_level(), options[mode])
        (got,) = run_program(program, feeds).values()
        assert not differences(got, reference.values(one)[one.expression]).size, one


def test_the_host_computes_what_kernels_compute() -> None:
    """What is folded when a network is built, or has no kernel, is what it would have been at run time."""

    def check(seed: int) -> None:
        one = tree(seed)
        found: dict[Expression, Array] = {}
        for part in walk(one.expression):
            operands = [found[child] for child in children(part)]
            alone = rebuild(part, tuple(arg(index) for index in range(len(operands))))
            value = evaluate_expression(alone, operands if operands else one.args)
            found[part] = np.broadcast_to(value, (LENGTH,))
            if operands and (part[0] == "cast" or is_exact(part[0], str(operands[-1].dtype))):
                with np.errstate(all="ignore"):
                    expected = cast(operands[0], part[1]) if part[0] == "cast" else apply(part[0], operands)
                wrong = differences(found[part], expected)
                assert not wrong.size, (part, [x[wrong[0]] for x in operands], expected[wrong[0]])

    check_seeds("expressions on the host", check, CAMPAIGN or 400)
