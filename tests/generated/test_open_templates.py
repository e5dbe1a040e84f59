"""Random networks with open extents: bound by numbers they are what they are when built for that very size.

``OPBUILD_FUZZ=5000`` tries so many networks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pytest

from generated.random_open import WIDTH, make_open_model, sizes
from opbuild.backend.evaluate import evaluate
from opbuild.errors import ModelError
from opbuild.frontend.onnx_model import OnnxModel, load_model
from opbuild.graph.types import Graph
from opbuild.kernel.level import LEVELS
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.available import meaning
from opbuild.lowering.context import Options
from opbuild.pipeline.loaded import with_rank
from opbuild.pipeline.steps import optimize_graph
from opbuild.pipeline.templates import OpenProgram
from opbuild.program import KernelCall, Program, View
from opbuild.runtime.binding import Shapes
from opbuild.runtime.memory_plan import views_of
from opbuild.runtime.template import OpenKernel, OpenView, Template, views_of_step
from opbuild.runtime.weights import Packer, pack_constants
from support.fuzzing import CAMPAIGN, check_seeds
from support.tiers import spans

SIZES = 8

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


def opened(model: OnnxModel, size: tuple[int, int]) -> OpenProgram:
    """A network lowered with open extents at a size."""

    def graph(shapes: Shapes) -> Graph:
        return optimize_graph(model.bind({"x": shapes[0]}, evaluate))

    return OpenProgram(graph, [(-1, -1, WIDTH)], ((*size, WIDTH),), LEVELS[-1], Options())


def template_of(program: OpenProgram) -> Template:
    """Its template."""
    return program.template(pack_constants(program.at_hand(), Packer()))


def filled(view: OpenView, numbers: list[int], time: int) -> View:
    """A view of a template in a size, where it is repeated the next time but ``time``."""
    dims = [numbers[place] for place in view.dims]
    return View(
        view.buffer, numbers[view.offset] + time * numbers[view.more], tuple(zip(dims[::2], dims[1::2], strict=True))
    )


def assert_same(template: Template, numbers: list[int], program: Program) -> None:
    """Compare what a template is in a size with what is lowered at that size."""
    assert [numbers[each.size] for each in template.buffers] == [each.size for each in program.buffers]
    for (index, time), call in zip(template.order(numbers), program.calls, strict=True):
        step = template.steps[index]
        assert [filled(view, numbers, time) for view in views_of_step(step)] == list(views_of(call))
        if isinstance(step, OpenKernel):
            assert isinstance(call, KernelCall)
            assert meaning(template.decided[step.decided].desc) == meaning(call.desc)
    shapes = [[numbers[place] for place in port.type.shape] for port in template.outputs]
    assert shapes == [list(port.type.shape) for port in program.outputs]


def is_chosen_alike(template: Template, numbers: list[int], program: Program) -> bool:
    """Return whether families chose the same variants, which lowering may look at."""
    steps = [template.steps[index] for index, _ in template.order(numbers)]
    descs = [template.decided[step.decided].desc for step in steps if isinstance(step, OpenKernel)]
    return descs == [call.desc for call in program.calls if isinstance(call, KernelCall)]


def assert_served(template: Template, numbers: list[int], kernels: Collection[OpDesc]) -> None:
    """Some kernel of those that were to be enough may compute each call in a size."""
    for each in template.decided:
        dims = [tuple((numbers[a], numbers[b]) for a, b in zip(p[::2], p[1::2], strict=True)) for p in each.dims]
        alike = [kernel for kernel in kernels if meaning(kernel) == meaning(each.desc)]
        assert any(kernel.problem(with_rank(kernel, dims)) is None for kernel in alike), each.desc


@pytest.mark.parametrize("seeds", spans(16, 5))
def test_a_template_is_what_lowering_makes_at_each_size_for_which_it_is(seeds: range) -> None:
    """Where its conditions hold, its numbers are those of the network lowered at that size; extents 0 and 1 too.

    The kernels of one size, and those without limits where they are not enough, compute it there.
    """
    found: Counter[str] = Counter()

    def one(seed: int) -> None:
        model = load_model(make_open_model(seed).SerializeToString())
        made: list[tuple[tuple[int, int], OpenProgram, Template]] = []
        enough: dict[Template, Collection[OpDesc]] = {}
        for size in sizes(seed, SIZES):
            try:
                program = opened(model, size)
            except ModelError:  # a size that the network does not take
                found["refused"] += 1
                continue
            kernels = program.kernels(lambda desc: [desc])
            made.append((size, program, template_of(program)))
            enough[made[-1][2]] = kernels
        for _, _, template in made:
            for size, program, _ in made:
                numbers = template.numbers(((*size, WIDTH),))
                if numbers is None:
                    found["another template"] += 1
                    continue
                assert_served(template, numbers.tolist(), enough[template])
                fixed = program.at_hand()
                alike = is_chosen_alike(template, numbers.tolist(), fixed)
                found["compared" if alike else "other variants"] += 1
                if alike:
                    assert_same(template, numbers.tolist(), fixed)

    check_seeds("open networks", one, seeds, processes=0)
    assert found["compared"] > found["another template"] / 4, found
