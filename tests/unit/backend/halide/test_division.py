"""Division of loops among tasks: what the expressions that kernels hold give for extents and numbers of tasks."""

from __future__ import annotations

import heapq
from itertools import product
from math import ceil

import halide as hl
import numpy as np

from opbuild.backend.halide.division import TENTHS, balance, either_or_both, is_as_even

TASKS = (1, 2, 3, 4, 6, 8, 16, 48, 64)
EXTENTS = (1, 2, 3, 5, 7, 12, 13, 14, 17, 28, 33, 56, 63, 112, 224)

LEAST_BALANCE = TENTHS / 10

CASES = list(product(TASKS, EXTENTS, EXTENTS))


def lengths_of_ranges() -> np.ndarray:
    """Return the lengths of ranges of two loops for all cases, where the one that is better balanced comes first."""
    table = np.array(CASES, np.int32)
    cases = hl.Buffer(table)
    case, which = hl.Var("case"), hl.Var("which")
    tasks, *extents = (cases[column, case] for column in range(3))
    first = balance(extents[0], tasks) >= balance(extents[1], tasks)
    lengths = either_or_both(first, (extents[0], extents[1]), tasks)
    function = hl.Func("lengths")
    function[which, case] = hl.mux(which, list(lengths))
    return np.array(function.realize([2, len(CASES)]))


def busy(tasks: int, extents: tuple[int, int], lengths: tuple[int, int]) -> float:
    """Return the share of time that threads work that take the next range when they are free."""
    pieces = [
        [min(length, extent - start) for start in range(0, extent, length)]
        for extent, length in zip(extents, lengths, strict=True)
    ]
    threads = [0] * tasks
    for one, other in product(*pieces):
        heapq.heapreplace(threads, threads[0] + one * other)
    return extents[0] * extents[1] / (tasks * max(threads))


def test_threads_are_busy_where_there_is_work_for_all() -> None:
    """For any number of tasks, threads work nearly as much of the time as single steps would let them."""
    for (tasks, *extents), lengths in zip(CASES, lengths_of_ranges(), strict=True):
        steps = extents[0] * extents[1]
        possible = steps / (tasks * ceil(steps / tasks))
        found = busy(tasks, (extents[0], extents[1]), tuple(map(int, lengths)))
        assert found >= LEAST_BALANCE * possible - 1e-6, f"{tasks} tasks of {extents} in {lengths}: {found}"


def test_one_task_is_everything() -> None:
    """A call that is not worth waking a thread for is one range of both loops."""
    for (tasks, *extents), lengths in zip(CASES, lengths_of_ranges(), strict=True):
        if tasks == 1:
            assert lengths.tolist() == extents


def test_ranges_are_of_one_loop_where_that_keeps_threads_busy() -> None:
    """One contiguous range a task: the next operator finds what it reads in its core's cache."""
    for (tasks, *extents), lengths in zip(CASES, lengths_of_ranges(), strict=True):
        if max(extent / (tasks * ceil(extent / tasks)) for extent in extents) >= LEAST_BALANCE + 1e-6:
            assert prod_of_ranges(extents, lengths) <= tasks
            assert any(length == extent for length, extent in zip(lengths, extents, strict=True))


def prod_of_ranges(extents: list[int], lengths: np.ndarray) -> int:
    """Return the number of tasks."""
    return int(np.prod([ceil(extent / length) for extent, length in zip(extents, lengths, strict=True)]))


def test_loops_are_compared_as_their_balances_are() -> None:
    """Whether a loop is as even as another one, without division, is what their balances say, ties included."""
    cases = hl.Buffer(np.array(CASES, np.int32))
    case, which = hl.Var("case"), hl.Var("which")
    tasks, one, other = (cases[column, case] for column in range(3))
    function = hl.Func("even")
    function[which, case] = hl.mux(which, [hl.u8(is_as_even(one, other, tasks, hl.f32(worth))) for worth in (1, 0.93)])
    found = np.array(function.realize([2, len(CASES)]))
    for (count, *extents), answers in zip(CASES, found, strict=True):
        first, second = (extent / (count * ceil(extent / count)) for extent in extents)
        for worth, answer in zip((1, 0.93), answers, strict=True):
            assert bool(answer) == (first >= worth * second - 1e-6), (count, extents, worth)
