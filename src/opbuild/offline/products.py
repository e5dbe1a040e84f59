"""Offline models: a model built into one file, for this machine or another, and loaded without a compiler."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opbuild.api import (
    list_operators,
    lower_graph,
    lowering_options,
    make_builder,
    warm_builder,
)
from opbuild.arguments import RangesGiven, ShapesGiven, as_ranges, as_shapes, as_variants, checks_arguments
from opbuild.config import Config
from opbuild.errors import BuildError, OptionError, ShapeError, TargetError, UnsupportedOperatorError
from opbuild.events import LINKING, PACKING, PREPARING, WRITING
from opbuild.files.trust import make_trust
from opbuild.files.writing import same_file, unwritable
from opbuild.frontend.input_shape import format_input_shape
from opbuild.graph.types import Graph
from opbuild.kernel.opdesc import FREE
from opbuild.kernel.soc_version import resolve_soc_version
from opbuild.kernel.target import runs_here
from opbuild.linking import link_build, linker_for
from opbuild.models.source import Model, ModelSource
from opbuild.offline.file import OfflineModel, PackedWeights, read_offline, write_offline
from opbuild.offline.format import GRAPH, Section
from opbuild.offline.host_nodes import refuse_foreign, servable
from opbuild.offline.ranges import RangeBinder, RangePlan, plan_ranges, range_section
from opbuild.platform.limits import hint_for, names_limits
from opbuild.program import Program
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.executor import Executor
from opbuild.runtime.library import Library
from opbuild.runtime.network import Binding, Network, Shapes
from opbuild.runtime.record import Record
from opbuild.session import Clock, Session, evaluate, open_session, report_notes, stored_report
from opbuild.text.plural import counted
from opbuild.version import __version__

if TYPE_CHECKING:
    from opbuild.builder.build import Builder
    from opbuild.builder.result import BuildResult
    from opbuild.events import Observer, Watch
    from opbuild.runtime.weights import Packer

SUFFIX = ".om"
MOST_SHOWN = 20
"""Input signatures of an offline model that a message lists."""


@checks_arguments
@names_limits(BuildError, "the network can not be built")
def build_offline(
    model: Model | Graph,
    output: str | os.PathLike[str],
    *,
    soc_version: str = "host",
    input_shapes: ShapesGiven | None = None,
    variants: Sequence[ShapesGiven] | None = None,
    ranges: RangesGiven | None = None,
    config: Config | None = None,
    observer: Observer | None = None,
) -> Path:
    """Build a model and write it as one file, which runs where neither the compiler nor the model's reader is.

    Args:
        model: A path, the bytes of a file, an ``onnx.ModelProto``, or a graph.
        output: The file to write; ``.om`` is added if it is not there. It is written whole or not at all.
        soc_version: The machine to build for: ``host``, or a target such as ``x86-64-linux-avx2``.
        input_shapes: Shapes by input name, where the model leaves them open or another is wanted.
        variants: Several input signatures for one file, each the shapes that differ from ``input_shapes``. They share
            operators, library and equal weights; a call picks by the shapes of its inputs.
        ranges: Shapes by input name in which an extent may be a least and a greatest one, the latter -1 for no limit,
            or -1 for any of at least 1; None is the same as -1. The file serves every size in them. Not with
            ``variants``.
        config: Settings; None reads the environment.
        observer: Told what happens, from threads of the build too.

    Returns:
        The file.

    Raises:
        ModelError: If the model is at fault, a shape is open, or an operator runs only where onnx is installed.
        OptionError: If an argument is at fault, or the file can not be written.
        BuildError: If an operator can not be built, or the network not linked.
    """
    path = _named(Path(output))
    _check_output(path, model)
    target = resolve_soc_version(soc_version)
    session = open_session(config or Config.from_environment(), target, observer, use_images=False, runs_elsewhere=True)
    clock, shapes = Clock(), as_shapes(input_shapes)
    with warm_builder(session) if not isinstance(model, Graph) else make_builder(session) as builder:
        if ranges:
            plan, digest = read_ranges(model, session, shapes, as_variants(variants), as_ranges(ranges))
            refuse_foreign(plan.host.values())
            _write(path, [plan.first], session, builder, digest, plan)
            return path
        graphs, digest = read_graphs(model, session, shapes, as_variants(variants))
        session.working(PREPARING)
        programs = [servable(lower_graph(graph, session, clock)) for graph in graphs]
        _write(path, programs, session, builder, digest)
    return path


@checks_arguments
@names_limits(BuildError, "the network can not be loaded")
def load(
    path: str | os.PathLike[str],
    *,
    num_threads: int | None = None,
    verify: bool = True,
    copy_weights: bool | None = None,
) -> Network:
    """Load an offline model; neither the compiler nor the model's reader is needed.

    Args:
        path: The ``.om`` file. Its weights are mapped: while networks run from it replace it by renaming another, as
            ``build_offline`` does. Who writes into it changes their numbers, and who cuts it ends them (SIGBUS).
        num_threads: Threads that run the network (default ``OPBUILD_NUM_THREADS``, else the cores).
        verify: Whether to compare the weights with their digest, 20 ms for 100 MB; the rest of the file always is.
        copy_weights: Read the weights into memory instead, where nobody can change them (default
            ``OPBUILD_COPY_WEIGHTS``, else not); each process then has its own.

    Returns:
        The network; it takes the input shapes that the file was made for, others raise ``ShapeError``.

    Raises:
        InvalidModelError: If the file can not be read, is no offline model, is damaged or not signed where there is a
            signing key, or others can write to it.
        TargetError: If it is for another machine than this one.
        LinkError: If its library can not be loaded.
    """
    return open_offline(path, num_threads=num_threads, verify=verify, copy_weights=copy_weights)[0]


def open_offline(
    path: str | os.PathLike[str],
    *,
    num_threads: int | None = None,
    verify: bool = True,
    copy_weights: bool | None = None,
) -> tuple[Network, str]:
    """Load an offline model as ``load`` does; return it with the shapes that it serves, as text."""
    config = Config.from_environment(num_threads=num_threads, copy_weights=copy_weights)
    model = read_offline(Path(path), verify=verify, trust=make_trust(config), copies=config.copy_weights)
    problem = runs_here(model.target)
    if problem:
        raise TargetError(
            f"{str(path)!r} can not run here: {problem}",
            "build it for this machine: soc_version='host', or a lesser one",
            command="build it for this machine: --soc_version=host, or a lesser one",
        )
    loaded = _Loaded(model, config.num_threads)
    first = model.signatures[0] if len(model.signatures) == 1 and loaded.ranges is None else None
    network = Network(
        model.name,
        loaded.inputs,
        model.outputs,
        loaded.bind,
        first=first,
        check=loaded.check,
        declare=lambda _: loaded.outputs(),
    )
    return network, loaded.served


class _Loaded:
    """Binds an offline model to the signatures that it serves."""

    def __init__(self, model: OfflineModel, num_threads: int) -> None:
        self._model = model
        library = model.library
        self._library = Library(library, num_threads) if library else None
        self.ranges = RangeBinder(model, self._library) if model.container.section(GRAPH).size else None
        self.inputs = self.ranges.inputs if self.ranges else model.endpoints

    def outputs(self) -> tuple[Endpoint, ...]:
        """Return the outputs; an extent that differs between the sizes that the file serves is -1."""
        return self.ranges.outputs() if self.ranges else self._model.output_endpoints()

    def bind(self, shapes: Shapes) -> Binding:
        if self.ranges and shapes not in self._model.signatures:
            return self.ranges.bind(shapes)
        clock = Clock()
        with clock("load"):
            record = self._model.record(self._model.signatures.index(shapes))
            executor = Executor(record, self._library, self._model.constants(record), evaluate)
        return Binding(executor, stored_report(record, clock))

    def check(self, shapes: Shapes) -> None:
        """Refuse shapes that the file does not serve."""
        if self.ranges:
            self.ranges.sizes.check(shapes)
        elif shapes not in self._model.signatures:
            raise ShapeError(
                f"the offline model {self._model.name} has no plan for {self._text(shapes)}",
                f"it serves {self.served}",
            )

    @property
    def served(self) -> str:
        """The shapes that the file serves."""
        if self.ranges:
            return self.ranges.sizes.text()
        shown = list(map(self._text, self._model.signatures[:MOST_SHOWN]))
        more = len(self._model.signatures) - len(shown)
        return " or ".join([*shown, *([f"{more} more"] if more else [])])

    def _text(self, shapes: Shapes) -> str:
        names = [name for name, _ in self._model.inputs]
        return ", ".join(f"{name}:{','.join(map(str, shape))}" for name, shape in zip(names, shapes, strict=True))


def _named(output: Path) -> Path:
    """Return the file to write, with its suffix.

    Raises:
        OptionError: If only a folder is named.
    """
    if output.name in ("", ".."):
        raise OptionError(f"output is {str(output)!r}, a folder", f"name a file: {str(output / 'model.om')!r}")
    return output if output.suffix == SUFFIX else output.with_name(output.name + SUFFIX)


def _check_output(path: Path, model: Model | Graph) -> None:
    """Refuse a place where no file can be written, and the model itself, before anything is built."""
    if isinstance(model, (str, os.PathLike)) and same_file(model, path):
        raise OptionError(f"output is {str(path)!r}, which is the model", "name another file to write")
    if problem := unwritable(path):
        raise OptionError(f"output is {str(path)!r}, and {problem}", "name a file in a folder that you may write to")


def read_graphs(
    model: Model | Graph,
    session: Session,
    input_shapes: Mapping[str, Sequence[int]],
    variants: Sequence[Mapping[str, Sequence[int]]] | None,
) -> tuple[list[Graph], str]:
    """Return the model's graph for each signature, and the model's digest, empty if it has none."""
    if isinstance(model, Graph):
        if input_shapes or variants:
            raise OptionError("shapes were given for a graph, which has its own", "leave input_shapes and variants out")
        return [model], ""
    source = ModelSource(model, session)
    signatures: list[Shapes] = []
    for variant in variants or [{}]:
        _, shapes = source.endpoints({**input_shapes, **variant})
        if shapes is None:
            given = {**input_shapes, **variant}
            types = {name: given.get(name, shape) for name, _, shape in source.face.inputs}
            name = next(name for name, shape in types.items() if shape is None or min(shape, default=0) < 0)
            raise ShapeError(
                f"input {name!r} has an open shape",
                f"give it: input_shapes={{{name!r}: (...)}}; for a file of many sizes give variants or ranges",
                command=f'give it: --input_shape "{name}:..."',
            )
        if shapes not in signatures:
            signatures.append(shapes)
    return [source.graph(shapes, keep=True) for shapes in signatures], source.digest


def read_ranges(
    model: Model | Graph,
    session: Session,
    input_shapes: Mapping[str, Sequence[int]],
    variants: Sequence[Mapping[str, Sequence[int]]] | None,
    ranges: Mapping[str, Sequence[int | tuple[int, int]]],
) -> tuple[RangePlan, str]:
    """Return what serves every size in the ranges, and the model's digest."""
    if isinstance(model, Graph) or variants:
        given = "several signatures" if variants else "a graph, which has its own shapes"
        raise OptionError(f"ranges of shapes were given with {given}", "give one of them")
    source = ModelSource(model, session)
    _check_ranks(source, ranges)
    fixed = {name: shape for name, shape in input_shapes.items() if name not in ranges}
    least = {name: [_least(extent) for extent in shape] for name, shape in ranges.items()}
    _, shapes = source.endpoints({**fixed, **least})
    if shapes is None:
        name = next(
            name
            for name, _, shape in source.face.inputs
            if name not in {**fixed, **ranges} and (shape is None or FREE in shape)
        )
        raise ShapeError(f"input {name!r} has an open shape, and no range", "give it a shape or a range too")
    names = [name for name, _, _ in source.face.inputs]
    whole = [ranges.get(name, shape) for name, shape in zip(names, shapes, strict=True)]
    options = lowering_options(session.config)
    float32 = session.config.precision_mode == "force_fp32"
    plan = plan_ranges(source.portable(), whole, session.target, options, force_float32=float32)
    return plan, source.digest


def _check_ranks(source: ModelSource, ranges: Mapping[str, Sequence[int | tuple[int, int]]]) -> None:
    """Refuse ranges that have other numbers of dimensions than their inputs, in the words in which they were given."""
    for name, _, declared in source.face.inputs:
        if name in ranges and declared is not None and len(ranges[name]) != len(declared):
            raise ShapeError(
                f"input {name!r} has {counted(len(declared), 'dimension')}, and "
                f"{format_input_shape({name: ranges[name]})!r} has {len(ranges[name])}",
                "give an extent or a range for each dimension",
            )


def _least(extent: int | tuple[int, int]) -> int:
    return max(extent, 1) if isinstance(extent, int) else extent[0]


def _write(
    path: Path,
    programs: Sequence[Program],
    session: Session,
    builder: Builder,
    digest: str,
    ranges: RangePlan | None = None,
) -> None:
    """Build all programs together and write them."""
    from opbuild.runtime.weights import Packer

    needed: dict[Any, tuple[str, ...]] = {}
    for program in programs:
        for desc, nodes in program.descriptors().items():
            needed[desc] = tuple(dict.fromkeys((*needed.get(desc, ()), *nodes)))
    for desc, nodes in ranges.kernels.items() if ranges else ():
        needed.setdefault(desc, nodes)
    linker = linker_for(needed, session)
    pending = builder.start(needed, programs[0].name)
    packer, weights = Packer(), PackedWeights()
    watch = session.working(PACKING)
    packed = [_pack(program, packer, weights, watch) for program in programs]
    built = pending.result()
    session.count(built)
    if built.built:
        session.age()
    records = [_record(program, built, *each) for program, each in zip(programs, packed, strict=True)]
    build = {
        "opbuild": __version__,
        "model": digest,
        "compiler": session.compiler.name + " " + session.compiler.version(),
        "operators": [[built.entries[desc].name, list(nodes)] for desc, nodes in needed.items()],
        "ranges": ranges.sizes.text() if ranges else "",
    }
    try:
        session.working(LINKING)
        library = link_build(built, session, linker)
        more = [_range_section(ranges, built, weights, packed[0])] if ranges else []
        write_offline(
            path,
            name=programs[0].name,
            target=session.target,
            num_threads=session.config.num_threads,
            records=records,
            library=library,
            weights=weights,
            build=build,
            more=more,
            trust=session.trust,
            watch=session.working(WRITING),
        )
    except ValueError as error:
        raise UnsupportedOperatorError(
            f"the network can not be stored: {error}", "use opbuild.compile", command="use opbuild build"
        ) from error
    except OSError as error:
        message = f"{str(path)!r} can not be written: {error.strerror or error}"
        raise OptionError(message, hint_for(error) or "name another file") from error


def _range_section(
    plan: RangePlan, built: BuildResult, weights: PackedWeights, constants: tuple[dict[int, int], Any]
) -> Section:
    positions, places = constants
    packed = {positions[number]: buffer for number, buffer in enumerate(plan.first.buffers) if number in positions}
    symbols = {desc: entry.symbol for desc, entry in built.entries.items()}
    return range_section(plan, symbols, weights, [(buffer, places[index]) for index, buffer in packed.items()])


def _pack(program: Program, packer: Packer, weights: PackedWeights, watch: Watch) -> tuple[dict[int, int], Any]:
    from opbuild.runtime.weights import pack_constants

    constants = pack_constants(program, packer, watch)
    return constants.positions, weights.place(constants.arrays)


def _record(program: Program, built: BuildResult, positions: dict[int, int], places: Any) -> Record:
    from opbuild.runtime.memory_plan import plan
    from opbuild.runtime.record import make_record

    symbols = {desc: entry.symbol for desc, entry in built.entries.items()}
    own = program.descriptors()
    operators = [operator for operator, decision in zip(list_operators(built), built.decisions, strict=True)
                 if decision.desc in own]  # fmt: skip
    notes = report_notes(operators, program.notes, built.checked_order)
    return make_record(program, symbols, plan(program), constant_of=positions, constants=places, notes=notes)
