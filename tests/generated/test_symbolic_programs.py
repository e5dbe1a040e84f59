"""Random networks with open extents: bound by numbers they are what they are when built for that very size.

``OPBUILD_FUZZ=5000`` tries so many networks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import numpy as np
import pytest

from generated.opened import example_views, fixed, record_of
from generated.random_open import WIDTH, make_open_model, sizes
from opbuild.backend.evaluate import evaluate
from opbuild.errors import ModelError
from opbuild.frontend.onnx_model import OnnxModel, load_model
from opbuild.graph.types import Array, Graph
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Options
from opbuild.pipeline.loaded import meaning, with_rank
from opbuild.pipeline.steps import optimize_graph
from opbuild.pipeline.symbolic_lowering import kernels_for_all_sizes
from opbuild.program import KernelCall, Program
from opbuild.runtime import dynamic
from opbuild.runtime.binding import Shapes
from opbuild.runtime.memory_plan import views_of
from opbuild.runtime.record import Record
from opbuild.runtime.symbolic import dims_of, host_call, numbers_of, run_kinds, symbolic_of
from opbuild.target.level import LEVELS
from support.fuzzing import CAMPAIGN, check_seeds
from support.lowered import lower_open
from support.tiers import spans

SIZES = 8

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


def opened(model: OnnxModel, size: tuple[int, int]) -> Program:
    """A network lowered with open extents at a size."""

    def graph(shapes: Shapes) -> Graph:
        return optimize_graph(model.bind({"x": shapes[0]}, evaluate))

    return lower_open(graph, [(-1, -1, WIDTH)], ((*size, WIDTH),), LEVELS[-1], Options())


def views_of_record(record: Record, numbers: Array) -> list[tuple[int, int, tuple[tuple[int, int], ...]]]:
    """All views of a record in a size, those of what is repeated each time."""
    symbolic = symbolic_of(record)
    order, times = dynamic._order(record, [int(numbers[each.times]) for each in symbolic.repetitions])
    ends = [0, *record.steps.ends.tolist()]
    of_step = {step: range(ends[call], ends[call + 1]) for call, step in enumerate(record.steps.kernels.tolist())}
    hosts = dict(zip(np.flatnonzero(record.steps.kind < 0).tolist(), record.steps.hosts, strict=True))
    found = []
    for step, time in zip(order.tolist(), times.tolist(), strict=True):
        if step in hosts:
            found += [tuple(each) for each in views_of(host_call(hosts[step], numbers))]
            continue
        views = record.steps[step].views
        for place, view in zip(of_step[step], views, strict=True):
            more = int(numbers[symbolic.more[place]]) if len(symbolic.more) else 0
            dims = tuple((int(numbers[extent]), int(numbers[stride])) for extent, stride in view.dims)
            found.append((view.buffer, int(numbers[view.offset]) + time * more, dims))
    return found


def assert_same(record: Record, numbers: Array, program: Program) -> None:
    """Compare what a record is in a size with what is lowered at that size."""
    # What is run at other sizes only has no memory.
    sizes = zip(numbers[record.buffers.size].tolist(), (fixed(each.size) for each in program.buffers), strict=True)
    assert all(own == size for own, size in sizes if size)
    assert views_of_record(record, numbers) == example_views(program)
    shapes = [numbers[list(port.type.shape)].tolist() for port in record.outputs]
    assert shapes == [list(fixed(port.type.shape)) for port in program.outputs]


def is_chosen_alike(record: Record, program: Program) -> bool:
    """Return whether families chose the same variants, which lowering may look at."""
    decided, called = symbolic_of(record).decided, record.steps.called.tolist()
    descs = [decided[kind].desc for kind in called if kind < len(decided)]
    return descs == [call.desc for call in program.calls if isinstance(call, KernelCall)]


def assert_served(record: Record, numbers: Array, kernels: Collection[OpDesc]) -> None:
    """Some kernel of those that were to be enough may compute each call in a size."""
    run = run_kinds(record, numbers)
    decided = zip(symbolic_of(record).decided, dims_of(record, numbers), strict=True)
    for each, dims in (pair for kind, pair in enumerate(decided) if kind in run):
        alike = [kernel for kernel in kernels if meaning(kernel) == meaning(each.desc)]
        assert any(kernel.problem(with_rank(kernel, dims)) is None for kernel in alike), each.desc


@pytest.mark.parametrize("seeds", spans(16, 5))
def test_a_program_is_what_lowering_makes_at_each_size_for_which_it_is(seeds: range) -> None:
    """Where its conditions hold, its numbers are those of the network lowered at that size; extents 0 and 1 too.

    The kernels of one size, and those without limits where they are not enough, compute it there.
    """
    found: Counter[str] = Counter()

    def one(seed: int) -> None:
        model = load_model(make_open_model(seed).SerializeToString())
        made: list[tuple[tuple[int, int], Program, Record]] = []
        enough: dict[Record, Collection[OpDesc]] = {}
        for size in sizes(seed, SIZES):
            try:
                program = opened(model, size)
            except ModelError:  # a size that the network does not take
                found["refused"] += 1
                continue
            kernels = kernels_for_all_sizes(program, lambda desc: [desc])
            made.append((size, program, record_of(program)))
            enough[made[-1][2]] = kernels
        for _, _, record in made:
            for size, program, _ in made:
                numbers = numbers_of(record, ((*size, WIDTH),))
                if numbers is None:
                    found["another program"] += 1
                    continue
                assert_served(record, numbers, enough[record])
                alike = is_chosen_alike(record, program)
                found["compared" if alike else "other variants"] += 1
                if alike:
                    assert_same(record, numbers, program)

    check_seeds("open networks", one, seeds, processes=0)
    assert found["compared"] > found["another program"] / 4, found
