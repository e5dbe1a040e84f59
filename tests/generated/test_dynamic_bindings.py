"""Random networks with open extents, lowered at one size and bound to others in random order, without a compiler."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest

from generated.opened import example_views, record_of
from generated.random_open import WIDTH, make_open_model, sizes
from generated.test_symbolic_programs import opened
from opbuild.errors import ModelError
from opbuild.frontend.onnx_model import load_model
from opbuild.kernel.opdesc import OpDesc
from opbuild.pipeline.loaded import LoadedKernels
from opbuild.pipeline.symbolic_lowering import kernels_for_all_sizes
from opbuild.program import Program
from opbuild.runtime.dynamic import DynamicNetwork, Sized
from opbuild.runtime.memory_plan import views_of
from opbuild.runtime.record import KernelStep, Record
from opbuild.runtime.soundness import problem
from opbuild.runtime.weights import Packer, pack_constants
from opbuild.target.level import CPU, LEVELS
from opbuild.target.machine import Machine
from support.fuzzing import CAMPAIGN, check_seeds
from support.tiers import spans

SIZES, CALLS = 6, 20

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


class NoLibrary:
    """Stands for a library of every kernel, none of which is called."""

    num_threads, call = 2, None

    def kernel(self, symbol: str) -> str:
        """The kernel, of which only the name is known."""
        return symbol


def loaded(descs: Collection[OpDesc]) -> tuple[LoadedKernels, dict[str, OpDesc]]:
    """Kernels as if they were loaded, and what each symbol is."""
    symbols = {desc: f"k{number}__kernel0" for number, desc in enumerate(descs)}
    library: Any = NoLibrary()
    kernels = LoadedKernels(Machine.of(LEVELS[-1]))
    kernels.add(symbols, {CPU: library})
    return kernels, {symbol: desc for desc, symbol in symbols.items()}


def views_of_bound(record: Record) -> list[tuple[Any, ...]]:
    """All views of a record, without dimensions that kernels have beyond those of their operands."""
    found = []
    for step in record.steps:
        views = step.views if isinstance(step, KernelStep) else views_of(step)
        found += [tuple(view) for view in views]
    return found


def assert_is(record: Record, program: Program) -> None:
    """A bound record has the buffers and views of the network lowered at that size."""
    for one, other in zip(views_of_bound(record), example_views(program), strict=True):
        rank = len(other[2])
        assert (one[0], one[1], one[2][:rank]) == other
        assert set(one[2][rank:]) <= {(1, 0)}


def assert_lawful(bound: Sized, known: dict[str, OpDesc]) -> None:
    """What was bound is sound, looked at as a whole, and each of its kernels may run where it is called."""
    record = bound.executor.record
    assert problem(record) is None
    for step in record.steps:
        if isinstance(step, KernelStep) and step.symbol in known:
            assert known[step.symbol].problem([view.dims for view in step.views]) is None


@pytest.mark.parametrize("seeds", spans(12, 4))
def test_in_any_order_a_size_is_bound_to_what_is_lowered_there(seeds: range) -> None:
    """Whatever was bound before: what is remembered of other sizes is never wrong, and kernels are always legal."""
    found: Counter[str] = Counter()

    def one(seed: int) -> None:
        model = load_model(make_open_model(seed).SerializeToString())
        programs: dict[tuple[int, int], Program] = {}
        for size in sizes(seed, SIZES):
            try:
                programs[size] = opened(model, size)
            except ModelError:  # a size that the network does not take
                found["refused"] += 1
        kernels, known = loaded({each: None for program in programs.values()
                                 for each in kernels_for_all_sizes(program, lambda desc: [desc])})  # fmt: skip
        networks = [
            DynamicNetwork(record_of(program), pack_constants(program, Packer()).arrays, None)
            for program in [*programs.values()][:2]
        ]
        chosen = random.Random(seed)
        for _ in range(CALLS if programs else 0):
            size = chosen.choice([*programs])
            for network in networks:
                bound = network.bind(((*size, WIDTH),), kernels)
                found["bound" if bound is not None else "another record"] += 1
                if bound is not None:
                    assert_lawful(bound, known)
                    assert_is(bound.executor.record, programs[size])

    check_seeds("dynamic bindings", one, seeds, processes=0)
    assert found["bound"] > found["another record"] / 4, found
