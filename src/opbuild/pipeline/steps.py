"""Single steps of the data path: each takes the result of the stage before it, and calls no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opbuild.backend.evaluate import evaluate
from opbuild.builder.job import BuildResult
from opbuild.config import Config
from opbuild.events import Watch, unwatched
from opbuild.graph.passes.narrow import force_float32
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Graph
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.lowering.tuned import NoTuning, Tuned
from opbuild.pipeline.setup import Setup
from opbuild.pipeline.stages import Assembled, Built, PackedProgram
from opbuild.platform.records import replace
from opbuild.program import Program
from opbuild.report import Clock, OperatorReport
from opbuild.runtime.assembly import make_record
from opbuild.runtime.devices.cpu.link import link, support_objects
from opbuild.runtime.devices.device import joined, open_device
from opbuild.runtime.memory_plan import plan
from opbuild.runtime.reports import record_notes
from opbuild.runtime.weights import Packer, pack_constants
from opbuild.target.level import CPU, Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opbuild.kernel.entry import Entry
    from opbuild.pipeline.symbolic_lowering import SymbolicShapes


def optimize_graph(graph: Graph, *, float32: bool = False) -> Graph:
    """Return the graph that is lowered; ``float32`` computes other floating-point types in float32."""
    return optimize(force_float32(graph) if float32 else graph, evaluate)


def lower_tuned(graph: Graph, setup: Setup, opened: SymbolicShapes | None = None) -> Program:
    """Return a graph lowered for a build, its variants those that tuning found where it found any."""
    if setup.device is None:
        return _lowered(graph, setup, lowering_options(setup.config), opened)
    from opbuild.lowering.fitting import fit  # most builds are for the CPU alone
    from opbuild.lowering.placement import place_lowered

    device = setup.device.device
    options = lowering_options(setup.config, device)
    placed = place_lowered(
        lambda nodes: _lowered(graph, setup, replace(options, on_cpu=nodes), opened),
        device,
        ends_there=setup.arrays_on_device,
    )
    return fit(placed, device)


def _lowered(graph: Graph, setup: Setup, options: Options, opened: SymbolicShapes | None) -> Program:
    if setup.has_tuning_database:
        from opbuild.pipeline.tuned_lowering import lower_with_records  # most builds have no database

        return lower_with_records(graph, setup, options, opened)
    asked = Tuned(NoTuning())
    options = replace(options, chooser=asked)
    program = lower(graph, setup.level, options) if opened is None else opened.lower(graph, setup.level, options)
    return replace(program, answers=asked.answers())


def lowering_options(config: Config, device: str = CPU) -> Options:
    """Return the lowering options that settings ask for."""
    return Options(impl_mode=config.op_select_implmode, impl_types=config.optypelist_for_implmode, device=device)


def pack(
    program: Program,
    packer: Packer,
    clock: Clock,
    watch: Watch = unwatched,
) -> PackedProgram:
    """Pack a program's constants and plan its memory: the part that needs no kernel."""
    with clock("pack"):
        constants = pack_constants(program, packer, watch)
    with clock("plan"):
        return PackedProgram(program, constants, plan(program) if program.symbols is None else None)


def link_kernels(result: BuildResult, setup: Setup) -> Built:
    """Return the kernels of a build, linked: those of the CPU in one library.

    Raises:
        LinkError: If they cannot be linked.
    """
    operators = {
        each.desc: OperatorReport(
            each.name, each.outcome, str(each.reason), each.nodes, entry.milliseconds, entry.symbol
        )
        for each in result.decisions
        for entry in (result.entries[each.desc],)
    }
    devices = sorted({desc.device for desc in result.entries}, key=lambda name: (name != CPU, name))  # the CPU first
    return Built(
        {desc: entry.symbol for desc, entry in result.entries.items()},
        joined({name: _linked(name, result, setup) for name in devices}),
        operators,
        result.checked_order,
        certain=result.certain,
        borrowed=sum(job.is_borrowed for job in result.decisions),
        warned=bool(result.warnings),
        compiler=result.compiler,
    )


def _linked(device: str, result: BuildResult, setup: Setup) -> bytes:
    """Return the code of one device."""
    entries = [entry for desc, entry in result.entries.items() if desc.device == device]
    if device != CPU:
        return open_device(device).link([entry.artifact for entry in entries])
    return link(_objects(entries, result, setup.level))


def _objects(entries: Sequence[Entry], result: BuildResult, level: Level) -> list[bytes]:
    """Return all that is linked: kernels, functions of the runtime they call, and the compiler's runtime library."""
    objects = [entry.object for entry in entries]
    objects += support_objects(level.triple, {symbol for entry in entries for symbol in entry.undefined})
    if result.runtime is not None:
        objects += [entry.object for entry in result.runtime.entries.values()]
    return objects


def assemble(packed: PackedProgram, built: Built) -> Assembled:
    """Put a network together, and check it: nothing is checked while it runs.

    Raises:
        BuildError: If a kernel may not run on the views it was given, or a view leaves its buffer.
    """
    program = packed.program
    own = built.operators if packed.memory is None else program.descriptors()  # any of them may run at some size
    operators = tuple(operator for desc, operator in built.operators.items() if desc in own)
    symbols = {desc: symbol for desc, symbol in built.symbols.items() if desc in own}
    own_answers = () if program.symbols is None else program.answers
    remarks = operators, program.notes, built.checked_order, symbols, program.tuned, own_answers, program.stayed
    notes = record_notes(*remarks)
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
