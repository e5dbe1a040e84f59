"""A network with symbolic extents: lowered, put together, and what is told of it in a size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from opbuild.errors import BuildError
from opbuild.graph.indices import is_check
from opbuild.pipeline.loaded import Decision, LoadedKernels, with_rank
from opbuild.pipeline.steps import lowering_options, optimize_graph
from opbuild.pipeline.templates import OpenProgram
from opbuild.program import KernelCall, Program, View
from opbuild.report import Clock, OperatorReport, Report
from opbuild.runtime.assembly import make_record
from opbuild.runtime.memory_plan import plan
from opbuild.runtime.record import Record
from opbuild.runtime.reports import record_notes
from opbuild.runtime.sized import Layout
from opbuild.runtime.template import OpenHost, OpenKernel, Template, to_json
from opbuild.runtime.weights import Constants

if TYPE_CHECKING:
    from opbuild.graph.cut import Cut
    from opbuild.graph.types import Graph
    from opbuild.pipeline.setup import Setup
    from opbuild.pipeline.source import Source
    from opbuild.pipeline.stages import Built
    from opbuild.runtime.binding import Shapes

SUITING = "it was there"
REPLACING = "it was there, in place of one that suits this size better"


def lower_open(
    source: Source, declared: Sequence[Sequence[int]], shapes: Shapes, setup: Setup, clock: Clock
) -> tuple[OpenProgram, Cut | None]:
    """Return a source lowered with symbolic extents at a size, and the graph break behind it.

    Args:
        source: The source.
        declared: The shapes of its inputs, -1 where extents are open.
        shapes: The size.
        setup: What it is built for.
        clock: Takes the time.

    Raises:
        Exception: Any, from what does not know symbolic extents.
    """

    def graph(opened: Shapes) -> Graph:
        read.append(source.graph(opened, clock))
        with clock("optimize"):
            return optimize_graph(read[0], float32=setup.config.forces_float32)

    read: list[Graph] = []
    with clock("lower"):
        program = OpenProgram(graph, declared, shapes, setup.level, lowering_options(setup.config))
    return program, read[0].follows


class OpenNetwork:
    """A network with symbolic extents, put together and checked at the size at which it was lowered.

    Args:
        program: The network, lowered.
        constants: Its constants, packed.
        built: Its kernels.
        loaded: Those that are loaded, among them its own.
        shapes: The size.
        follows: The graph break behind it.

    Attributes:
        layout: What is bound to sizes.
        record: The network in the size.
        constants: The same.
        built: The same.

    Raises:
        BuildError: If something does not compute it, or it is not sound.
    """

    def __init__(
        self,
        program: OpenProgram,
        constants: Constants,
        built: Built,
        loaded: LoadedKernels,
        shapes: Shapes,
        follows: Cut | None,
    ) -> None:
        template = replace(program.template(constants), follows=follows)
        self.layout, self.constants, self.built = Layout(template, constants.arrays), constants, built
        numbers = template.numbers(shapes)
        decision = None if numbers is None else loaded.decide(template, numbers.tolist())
        if numbers is None or decision is None or not decision.complete:
            raise BuildError("a network does not serve the size at which it was lowered")
        try:
            steps = [template.steps[index] for index, _ in template.order(numbers.tolist())]
        except ValueError as error:
            raise BuildError(f"a network does not serve the size at which it was lowered: {error}") from error
        self.record = _record(program.at_hand(), steps, decision, constants)

    @property
    def content(self) -> dict[str, Any]:
        """What is stored beside the record, as JSON values."""
        symbols = [[desc.components(), symbol] for desc, symbol in self.built.symbols.items()]
        return {"template": to_json(self.layout.template), "kernels": symbols}


def _record(
    program: Program, steps: Sequence[OpenKernel | OpenHost], decision: Decision, constants: Constants
) -> Record:
    symbols, calls = {}, []
    for call, step in zip(program.calls, steps, strict=True):
        chosen = decision.chosen[step.decided] if isinstance(step, OpenKernel) else None
        if not isinstance(call, KernelCall) or chosen is None:
            calls.append(call)
            continue
        desc, symbol = chosen.kernel.desc, chosen.kernel.symbol
        dims = with_rank(desc, [view.dims for view in call.views])
        views = tuple(View(view.buffer, view.offset, each) for view, each in zip(call.views, dims, strict=True))
        calls.append(replace(call, desc=desc, views=views, work=chosen.work))
        symbols[desc] = symbol
    chosen_program = replace(program, calls=tuple(calls))
    return make_record(
        chosen_program,
        symbols,
        plan(chosen_program),
        constant_of=constants.positions,
        constants=constants.places,
        notes=record_notes((), program.notes),
    )


def open_report(
    template: Template,
    decision: Decision,
    arena: int,
    clock: Clock,
    made: Mapping[str, OperatorReport],
    level: str,
) -> Report:
    """Return the report of a network bound to a size.

    Args:
        template: The network.
        decision: Its kernels in the size.
        arena: Bytes of its memory.
        clock: How long each step took.
        made: The kernels that were built for it just now, by symbol.
        level: The level of its code, as readers are told.
    """
    nodes: dict[int, dict[str, None]] = {}
    host: dict[str, int] = {}
    for step in template.steps:
        if isinstance(step, OpenKernel):
            nodes.setdefault(step.decided, {}).update(dict.fromkeys(step.nodes))
        elif not is_check(step.node):
            host[step.node.op_type] = host.get(step.node.op_type, 0) + 1
    served: dict[tuple[str, str], dict[str, None]] = {}
    for number, each in enumerate(decision.chosen):
        if each is not None:
            reason = SUITING if number not in decision.replaced else REPLACING
            served.setdefault((each.kernel.symbol, reason), {}).update(nodes.get(number, {}))
    operators = [
        made[name]._replace(nodes=tuple(of)) if name in made else OperatorReport(name, "reused", why, tuple(of))
        for (name, why), of in served.items()
    ]
    chosen_names = {name for name, _ in served}
    operators += [each for name, each in made.items() if each.status == "built" and name not in chosen_names]
    return Report(
        network=template.name,
        operators=tuple(operators),
        host=host,
        steps=clock.steps,
        notes=template.notes,
        arena=arena,
        level=level,
        constants=sum(constant.nbytes for constant in template.constants),
    )
