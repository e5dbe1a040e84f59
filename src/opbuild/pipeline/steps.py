"""Single steps of the data path: each takes what the stage before it delivered, and calls no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opbuild.backend.evaluate import evaluate
from opbuild.builder.result import BuildResult
from opbuild.config import Config
from opbuild.events import Watch, unwatched
from opbuild.graph.passes.float32 import force_float32
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Graph
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.lowering.tuned import Nothing, Tuned
from opbuild.pipeline.setup import Setup
from opbuild.pipeline.stages import Assembled, Built, Packed
from opbuild.platform.records import replace
from opbuild.program import Program
from opbuild.report import Clock, OperatorReport
from opbuild.runtime.assembly import make_record
from opbuild.runtime.link import link_with_any, support_objects
from opbuild.runtime.memory_plan import plan
from opbuild.runtime.reports import record_notes
from opbuild.runtime.weights import Packer, pack_constants
from opbuild.target.level import Level

if TYPE_CHECKING:
    from opbuild.pipeline.symbolic_lowering import SymbolicShapes


def optimize_graph(graph: Graph, *, float32: bool = False) -> Graph:
    """Return the graph that is lowered; ``float32`` computes other floating-point types in float32."""
    return optimize(force_float32(graph) if float32 else graph, evaluate)


def lower_tuned(graph: Graph, setup: Setup, opened: SymbolicShapes | None = None) -> Program:
    """Return a graph lowered for a build, its variants those that tuning found where it found any.

    Args:
        graph: The optimized graph.
        setup: What it is built for.
        opened: The shapes of its inputs, if they have symbolic extents.
    """
    options = lowering_options(setup.config)
    if setup.has_bank:
        from opbuild.pipeline.tuned_lowering import lower_with_bank  # most builds have no bank

        return lower_with_bank(graph, setup, options, opened)
    asked = Tuned(Nothing())
    options = replace(options, chooser=asked)
    program = lower(graph, setup.level, options) if opened is None else opened.lower(graph, setup.level, options)
    return replace(program, answers=asked.answers())


def lowering_options(config: Config) -> Options:
    """Return what settings say about lowering."""
    return Options(impl_mode=config.op_select_implmode, impl_types=config.optypelist_for_implmode)


def pack(
    program: Program,
    packer: Packer,
    clock: Clock,
    watch: Watch = unwatched,
) -> Packed:
    """Pack a program's constants and plan its memory: what needs no kernel."""
    with clock("pack"):
        constants = pack_constants(program, packer, watch)
    with clock("plan"):
        return Packed(program, constants, plan(program) if program.symbols is None else None)


def link_kernels(result: BuildResult, setup: Setup) -> Built:
    """Return the kernels of a build in one library.

    Raises:
        LinkError: If they can not be linked.
    """
    level = setup.level
    operators = {
        each.desc: OperatorReport(
            each.name, each.outcome, str(each.reason), each.nodes, result.entries[each.desc].milliseconds
        )
        for each in result.decisions
    }
    return Built(
        {desc: entry.symbol for desc, entry in result.entries.items()},
        link_with_any(_objects(result, level), setup.config.linker, level.triple) if result.entries else b"",
        operators,
        result.checked_order,
        certain=result.certain,
        borrowed=sum(job.is_borrowed for job in result.decisions),
        warned=bool(result.warnings),
        compiler=result.compiler,
    )


def _objects(result: BuildResult, level: Level) -> list[bytes]:
    """Return all that is linked: kernels, what they call of the runtime, and the compiler's runtime library."""
    entries = list(result.entries.values())
    objects = [entry.object for entry in entries]
    objects += support_objects(level.triple, {symbol for entry in entries for symbol in entry.undefined})
    if result.runtime is not None:
        objects += [entry.object for entry in result.runtime.entries.values()]
    return objects


def assemble(packed: Packed, built: Built) -> Assembled:
    """Put a network together, and check it: nothing is checked while it runs.

    Raises:
        BuildError: If a kernel may not run on the views it was given, or a view leaves its buffer.
    """
    program = packed.program
    own = program.descriptors()
    operators = tuple(operator for desc, operator in built.operators.items() if desc in own)
    symbols = {desc: symbol for desc, symbol in built.symbols.items() if desc in own}
    own_answers = () if program.symbols is None else program.answers
    notes = record_notes(operators, program.notes, built.checked_order, symbols, program.tuned, own_answers)
    constants = packed.constants
    if packed.memory is None:
        from opbuild.runtime.numbering import numbered  # most networks are for one size

        record = numbered(program, constants.positions, constants.places, notes)
    else:
        record = make_record(
            program,
            built.symbols,
            packed.memory,
            constant_of=constants.positions,
            constants=constants.places,
            notes=notes,
        )
    return Assembled(record, packed.constants, built, operators, program.answers)
