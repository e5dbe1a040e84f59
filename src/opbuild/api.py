"""The data path: from a model to a callable network, one step a line, no step back.

    load_model -> optimize -> lower -> Builder -> pack_constants -> plan -> link -> Network

A network that was built before starts from its stored image, and none of these steps runs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from opbuild.arguments import ShapesGiven, as_shapes, checks_arguments
from opbuild.config import Config
from opbuild.errors import BuildError
from opbuild.graph.types import Graph, TensorType
from opbuild.kernel.networks import ImageKey
from opbuild.kernel.target import Target
from opbuild.linking import link_build, linker_for
from opbuild.models.source import Model, ModelSource
from opbuild.platform.background import begin
from opbuild.platform.limits import names_limits
from opbuild.report import OperatorReport, Report
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.network import Binding, Network, Shapes
from opbuild.session import Clock, Session, evaluate, make_report, open_session, report_notes

if TYPE_CHECKING:
    from opbuild.builder.build import Builder
    from opbuild.builder.result import BuildResult
    from opbuild.events import Observer
    from opbuild.lowering.context import Options
    from opbuild.program import Program

__all__ = ["Network", "Report", "compile", "compile_graph"]


@checks_arguments
@names_limits(BuildError, "the network can not be built")
def compile(  # noqa: A001  the name that users know from torch.compile and TVM
    model: Model,
    *,
    input_shapes: ShapesGiven | None = None,
    cache_path: str | os.PathLike[str] | None = None,
    num_threads: int | None = None,
    copy_weights: bool | None = None,
    workers: int | None = None,
    forbid_compile: bool | None = None,
    target: str | Target | None = None,
    op_compiler_cache_mode: str | None = None,
    op_compiler_cache_dir: str | os.PathLike[str] | None = None,
    op_debug_level: int | None = None,
    op_debug_config: str | os.PathLike[str] | None = None,
    debug_dir: str | os.PathLike[str] | None = None,
    op_select_implmode: str | None = None,
    optypelist_for_implmode: str | Sequence[str] | None = None,
    precision_mode: str | None = None,
    observer: Observer | None = None,
) -> Network:
    """Build an ONNX model, operator by operator, and return it ready to call.

    Operators that the store has are not built again; a network that was built before starts from its stored image.

    Args:
        model: A path, the bytes of a file, or an ``onnx.ModelProto``.
        input_shapes: Shapes by input name, where the model leaves them open or another is wanted; None or -1 leaves an
            extent open. Inputs that are open, or named here, may have other shapes from call to call; a new signature
            is bound when it is first seen.
        cache_path: Folder that holds ``rank_<id>/kernel_meta`` (default ``MS_COMPILER_CACHE_PATH``, else the user's own
            store: ``$XDG_CACHE_HOME/opbuild``, else ``~/.cache/opbuild``).
        num_threads: Threads that run the network (default ``OPBUILD_NUM_THREADS``, else the cores).
        copy_weights: Read weights that the cache has into memory of this process, where nobody can change or cut them,
            instead of mapping them (default ``OPBUILD_COPY_WEIGHTS``, else not).
        workers: Operators compiled at once (default ``MS_BUILD_PROCESS_NUM``, else the cores).
        forbid_compile: Any compile is an error (default ``OPBUILD_FORBID_COMPILE``).
        target: The machine to build for, as Halide spells it (default this one).
        op_compiler_cache_mode: ``enable`` (the default) reuses and adds; ``force`` compiles every operator of this
            build again and replaces its entry; ``disable`` neither reads nor writes.
        op_compiler_cache_dir: Folder that holds ``<target>/`` and ``op_cache.ini``, instead of ``cache_path``.
        op_debug_level: 0 to 4, as ATC's option; not 0: every operator is compiled, and the cache is left alone.
        op_debug_config: File with ATC's ``op_debug_config`` and ``op_debug_list``.
        debug_dir: Existing folder for the files of debugging (default ``./kernel_meta``).
        op_select_implmode: ``high_performance`` (the default) or ``high_precision``.
        optypelist_for_implmode: Operator types that ``op_select_implmode`` is for (default all).
        precision_mode: ``must_keep_origin_dtype`` (the default) or ``force_fp32``.
        observer: Told what happens, from threads of the build too.

    Raises:
        ModelError: If the model is at fault.
        OptionError: If an argument or a variable is at fault.
        BuildError: If an operator can not be built, or the network not linked.
    """
    config = Config.from_environment(
        cache_path=cache_path,
        forbid_compile=forbid_compile,
        workers=workers,
        num_threads=num_threads,
        copy_weights=copy_weights,
        op_compiler_cache_mode=op_compiler_cache_mode,
        op_compiler_cache_dir=op_compiler_cache_dir,
        op_debug_level=op_debug_level,
        op_debug_config=op_debug_config,
        debug_dir=debug_dir,
        op_select_implmode=op_select_implmode,
        optypelist_for_implmode=optypelist_for_implmode,
        precision_mode=precision_mode,
    )
    return compile_model(model, config, input_shapes=input_shapes, target=target, observer=observer)


@names_limits(BuildError, "the network can not be built")
def compile_model(
    model: Model,
    config: Config,
    *,
    input_shapes: ShapesGiven | None = None,
    target: str | Target | None = None,
    observer: Observer | None = None,
    check: Callable[[Sequence[Endpoint]], None] | None = None,
) -> Network:
    """Build an ONNX model as ``compile`` does.

    Args:
        model: The model.
        config: Settings.
        input_shapes: Shapes by input name.
        target: The machine to build for; None: this one.
        observer: Told what happens.
        check: Called with the network's inputs before anything is built; what it raises ends the build.
    """
    session = open_session(config, target, observer)
    with _Preparation(session) as preparation:
        source = ModelSource(model, session, preparation.begin)
        if not source.known:
            preparation.begin()
        shapes = as_shapes(input_shapes)
        inputs, first = source.endpoints(shapes)
        if check is not None:
            check(inputs)
        binder = _OnnxBinder(source, session, preparation.builder)
        return Network(
            source.face.name,
            inputs,
            [output.name for output in source.face.outputs],
            binder,
            first=first,
            any_shape=shapes,
            declare=lambda bound: source.outputs(inputs, bound),
        )


@checks_arguments
@names_limits(BuildError, "the network can not be built")
def compile_graph(
    graph: Graph, *, config: Config | None = None, observer: Observer | None = None, image: bool = True
) -> Network:
    """Build a graph and return it ready to call.

    Args:
        graph: A network for one input signature.
        config: Settings; None reads the environment.
        observer: Told what happens.
        image: Whether to start from a stored network, and to store this one.

    Raises:
        ModelError: If a node can not be expressed.
        BuildError: If an operator can not be built, or the network not linked.
    """
    session = open_session(config or Config.from_environment(), None, observer, use_images=image)
    inputs = tuple(Endpoint(name, graph.types[name]) for name in graph.inputs)

    def bind(_: Shapes) -> Binding:
        key = _graph_key(graph, session)
        clock = Clock()
        found = session.start(key, clock) if key is not None else "the graph can not be stored"
        if isinstance(found, Binding):
            return found
        with make_builder(session) as builder:
            return build_network(graph, session, builder, key=key, image_reason=found, clock=clock)

    return Network(graph.name, inputs, graph.outputs, bind, first=tuple(endpoint.type.shape for endpoint in inputs))


def build_network(
    graph: Graph,
    session: Session,
    builder: Builder,
    *,
    key: ImageKey | None,
    image_reason: str,
    clock: Clock,
    source: ModelSource | None = None,
) -> Binding:
    """Take a graph through the data path.

    Args:
        graph: The network for one input signature.
        session: Settings and stores.
        builder: Builds the operators that the store lacks.
        key: Names the image to store; None stores none.
        image_reason: Why the network did not start from its image.
        clock: Takes the time of each step.
        source: The model that the graph is of; None if it is of none.
    """
    from opbuild.events import LINKING, PACKING, PREPARING, WRITING
    from opbuild.runtime.memory_plan import plan
    from opbuild.runtime.record import make_record
    from opbuild.runtime.weights import pack_constants

    weights = session.weights()
    session.working(PREPARING)
    program = lower_graph(graph, session, clock)
    linker = linker_for(program.descriptors(), session)
    with clock("decide"):
        pending = builder.start(program.descriptors(), program.name)
    with clock("pack"):
        constants = pack_constants(program, weights, session.working(PACKING))
    with clock("plan"):
        memory = plan(program)
    with clock("build"):
        built = pending.result()
        session.count(built)
    session.working(LINKING)
    with clock("link"):
        library = link_build(built, session, linker)
    operators = list_operators(built)
    with clock("start"):
        symbols = {desc: entry.symbol for desc, entry in built.entries.items()}
        notes = report_notes(operators, program.notes, built.checked_order)
        record = make_record(
            program, symbols, memory, constant_of=constants.positions, constants=constants.places, notes=notes
        )
        executor = session.executor(record, library, constants.arrays)
    session.working(WRITING)
    with clock("store"):
        stores_image = key is not None and session.use_images and _is_certain(key, session, builder, built, source)
        if key is not None and stores_image:
            try:
                session.images.save(key, record, library, constants, weights)
            except (OSError, ValueError) as error:
                if not built.warnings:  # a store that can not be written is said once
                    session.warn(f"the network {program.name} was built but not stored: {error}", not_stored=1)
        if stores_image or built.built:
            session.age()
    return Binding(executor, make_report(record, operators, program.notes, clock, image_reason))


def _is_certain(
    key: ImageKey, session: Session, builder: Builder, built: BuildResult, source: ModelSource | None
) -> bool:
    """Return whether a network is what its key says: nothing that the key names changed while it was built."""
    if source is not None and source.edited:
        return False
    return built.certain and session.made_of(key, builder.identity().digest)


def lower_graph(graph: Graph, session: Session, clock: Clock) -> Program:
    """Return the program of a graph for one input signature."""
    from opbuild.graph.passes.float32 import force_float32
    from opbuild.graph.passes.pipeline import optimize
    from opbuild.lowering.lower import lower

    if session.config.precision_mode == "force_fp32":
        graph = force_float32(graph)
    with clock("optimize"):
        graph = optimize(graph, evaluate)
    with clock("lower"):
        return lower(graph, session.target, lowering_options(session.config))


def lowering_options(config: Config) -> Options:
    """Return what settings say about lowering."""
    from opbuild.lowering.context import Options

    mode, types = config.op_select_implmode, config.optypelist_for_implmode
    return Options(impl_mode=mode, impl_types=types, num_threads=config.num_threads)


class _Preparation:
    """What takes time and can begin before a model is read: starting the compile server, and loading onnx.

    Attributes:
        builder: The builder whose server was started; None until it was.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.builder: Builder | None = None

    def __enter__(self) -> _Preparation:
        return self

    def __exit__(self, *_: object) -> None:
        if self.builder is not None:
            self.builder.close()

    def begin(self) -> None:
        """Begin, unless that was done."""
        if self.builder is None:
            self.builder = warm_builder(self._session)
            begin(_load_frontend, "opbuild-import")


def _load_frontend() -> None:
    with contextlib.suppress(Exception):  # raised again, and reported, where it is needed
        import_module("opbuild.frontend.onnx_model")


class _OnnxBinder:
    """Binds an ONNX model to input signatures."""

    def __init__(self, source: ModelSource, session: Session, builder: Builder | None) -> None:
        self._source = source
        self._session = session
        self._builder = builder

    def __call__(self, shapes: Shapes) -> Binding:
        source, session, clock = self._source, self._session, Clock()
        inputs = zip(source.face.inputs, shapes, strict=True)
        key = session.key(source.face.name, source.digest, {n: TensorType(d, shape) for (n, d, _), shape in inputs})
        found = session.start(key, clock)
        if isinstance(found, Binding):
            source.remember()  # unless it is: a build may have been killed before
            source.release()
            return found
        builder, self._builder = self._builder or warm_builder(session), None
        with builder:
            with clock("read"):
                graph = source.graph(shapes)
            binding = build_network(graph, session, builder, key=key, image_reason=found, clock=clock, source=source)
        source.remember()
        return binding


def list_operators(built: BuildResult) -> tuple[OperatorReport, ...]:
    """Return what became of each operator of a build."""
    return tuple(
        OperatorReport(d.name, d.outcome, str(d.reason), d.nodes, built.entries[d.desc].milliseconds)
        for d in built.decisions
    )


def _graph_key(graph: Graph, session: Session) -> ImageKey | None:
    from opbuild.graph.identity import graph_digest

    if not session.use_images:
        return None
    try:
        digest = graph_digest(graph)
    except ValueError:
        return None
    return session.key(graph.name, digest, {name: graph.types[name] for name in graph.inputs})


def make_builder(session: Session) -> Builder:
    """Return a builder into the session's folder."""
    from opbuild.builder.build import Builder
    from opbuild.runtime.support import provided_symbols
    from opbuild.store.debug_folder import DebugFolder

    operators, runtimes = session.stores
    return Builder(
        operators,
        session.compiler,
        session.target,
        session.config,
        session.observer,
        runtime_store=runtimes,
        provided=provided_symbols(session.target.triple),
        force=session.config.forces,
        rebuilt=session.rebuilt,
        others=session.other_targets,
        debug=session.debug,
        debug_folder=DebugFolder(session.debug.folder),
        claims=session.claims,
    )


def warm_builder(session: Session) -> Builder:
    """Return a builder whose compile server starts while the model is read."""
    builder = make_builder(session)
    builder.warm_up()
    return builder
