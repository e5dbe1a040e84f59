"""The data path: from a model to a callable network, one step a line, no step back.

    model -> Wanted -> Graph -> Planned -> Packed, Built -> Assembled -> Network

A network that was built before starts from its stored image, and nothing after ``Wanted`` is needed. Offline models,
previews and bundles take the same steps and end elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from opbuild.arguments import ShapesGiven, as_shapes, checks_arguments
from opbuild.config import Config, options_in
from opbuild.errors import BuildError
from opbuild.events import LINKING, PACKING, PREPARING, READING, WRITING, Observer, working
from opbuild.graph.types import Graph, TensorType
from opbuild.kernel.free import FREE
from opbuild.kernel.level import Level
from opbuild.models.endpoints import inputs_of, of_ranks, outputs_of
from opbuild.models.source import Model, ModelSource, is_surely_new
from opbuild.pipeline.images import Ahead, Wanted
from opbuild.pipeline.lower_levels import open_known, plan_served, start_stored, start_whole
from opbuild.pipeline.setup import Setup, set_up
from opbuild.pipeline.stores import EarlyStart, Stores, make_builder
from opbuild.platform.background import Background
from opbuild.platform.garbage import rare_collection
from opbuild.platform.limits import names_limits
from opbuild.report import Clock, Report
from opbuild.runtime.binding import Binding, Bound, Shapes
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.network import Network
from opbuild.runtime.reports import make_report

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from opbuild.builder.build import Builder
    from opbuild.builder.work import Work
    from opbuild.pipeline.opening import Openable
    from opbuild.pipeline.signatures import Signatures
    from opbuild.pipeline.stages import Assembled, Built, Planned
    from opbuild.runtime.weights import Packer

__all__ = ["Network", "Report", "compile", "compile_graph", "compile_source"]


# -- the data path -----------------------------------------------------------------------------------------------------


def bind_wanted(wanted: Wanted, stores: Stores, new_builder: Callable[[], Builder]) -> Binding:
    """Make a network ready for one input signature: start it as it is stored, or build and store it."""
    clock, setup = Clock(), stores.setup
    stored = start_stored(wanted.key, stores, clock)
    if isinstance(stored, Binding):
        return stored
    otherwise = wanted.otherwise()
    if otherwise is not None:
        return otherwise
    with new_builder() as builder:
        served = plan_served(stores, builder, lambda setup: plan_graphs([wanted.read(clock)], setup, clock))
        needed, stores, setup = served.needed, served.stores, served.stores.setup
        known = stores.images.start_made(wanted.key, needed.programs[0].answers, clock)
        if known is not None:
            return known
        packer, cut = stores.packer(), wanted.cut()
        ahead = wanted.ahead if cut is None else Ahead()
        (network,) = build_network(needed, setup, stores, served.builder, packer, clock, ahead)
        network = network.followed_by(cut)
        with clock("start"):
            executor = stores.images.run(network.record, network.built.library, network.constants.arrays)
            ahead.built(network.built, executor.library)
        wanted.is_edited()  # which raises, before anybody has numbers of two versions of a model
        working(setup.observer, WRITING)
        with clock("store"):
            if not stores.images.keep(wanted, network, packer, stores.age) and network.built.compiled:
                stores.age()
    level = setup.level_text_with(network.built.borrowed)
    return Binding(executor, make_report(network.record, network.operators, clock, level, stored))


def plan_graphs(graphs: Sequence[Graph], setup: Setup, clock: Clock) -> Planned:
    """Return what must be built for a network; there is a graph for each input signature."""
    from opbuild.pipeline.stages import planned
    from opbuild.pipeline.steps import lower_tuned, optimize_graph

    working(setup.observer, PREPARING)
    with clock("optimize"):
        optimized = [optimize_graph(graph, float32=setup.config.forces_float32) for graph in graphs]
    with clock("lower"):
        programs = [lower_tuned(graph, setup) for graph in optimized]
    return planned(optimized, programs)


def build_network(
    needed: Planned,
    setup: Setup,
    stores: Stores,
    builder: Builder,
    packer: Packer,
    clock: Clock,
    ahead: Ahead = Ahead(),  # noqa: B008  it has no state
) -> list[Assembled]:
    """Build what a network needs and put it together.

    Weights are packed while kernels are looked up, compiled or linked.
    """
    from opbuild.graph.constants import remembered_digests
    from opbuild.pipeline.steps import assemble, link_kernels, pack

    with clock("lower"):
        more = ahead.lower()
    # What is put there knows nothing of this list: a cycle would keep the weights when all is done.
    begun: list[tuple[Work, Background[Built]]] = []

    def decide() -> None:
        if begun:
            return
        with clock("decide"):
            work = builder.start(needed.kernels, needed.name, more, setup.find_linker)
            linking = Background(lambda: link_kernels(work.result(), setup), "opbuild-link")
            if not work.jobs:
                work.result()
                linking.start()
            begun.append((work, linking))

    watch = working(setup.observer, PACKING)
    with remembered_digests():
        packed = [pack(program, packer, clock, watch, decide) for program in needed.programs]
        with clock("pack"):
            ahead.pack(packer)
    decide()
    ((pending, linking),) = begun
    with clock("build"):
        result = pending.result()
        stores.count(result)
    working(setup.observer, LINKING)
    with clock("link"):
        built = linking.result()
    with clock("start"):
        return [assemble(each, built) for each in packed]


# -- networks in this process ------------------------------------------------------------------------------------------


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
    target: str | Level | None = None,
    op_compiler_cache_mode: str | None = None,
    op_compiler_cache_dir: str | os.PathLike[str] | None = None,
    op_debug_level: int | None = None,
    op_debug_config: str | os.PathLike[str] | None = None,
    debug_dir: str | os.PathLike[str] | None = None,
    op_select_implmode: str | None = None,
    optypelist_for_implmode: str | Sequence[str] | None = None,
    precision_mode: str | None = None,
    remote: str | None = None,
    executor: Executor | None = None,
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
        forbid_compile: Any compile is an error (default ``OPBUILD_FORBID_COMPILE``); a lower level's operators serve
            where the level's own are missing, and the report says so.
        target: The level to build for, such as ``x86-64-v3`` (default this machine's).
        op_compiler_cache_mode: ``enable`` (the default) reuses and adds; ``force`` compiles every operator of this
            build again and replaces its entry; ``disable`` neither reads nor writes.
        op_compiler_cache_dir: Folder that holds ``<level>/`` and ``op_cache.ini``, instead of ``cache_path``.
        op_debug_level: 0 to 4, as ATC's option; not 0: every operator is compiled, and the cache is left alone.
        op_debug_config: File with ATC's ``op_debug_config`` and ``op_debug_list``.
        debug_dir: Existing folder for the files of debugging (default ``./kernel_meta``).
        op_select_implmode: ``high_performance`` (the default) or ``high_precision``.
        optypelist_for_implmode: Operator types that ``op_select_implmode`` is for (default all).
        precision_mode: ``must_keep_origin_dtype`` (the default) or ``force_fp32``.
        remote: URL of a store that others share, such as ``redis://host``, from which comes what one's own lacks
            (default ``OPBUILD_REMOTE``, else what ``op_cache.ini`` says, else none).
        executor: Compiles instead of this host: a ``concurrent.futures.Executor``, also of Dask or mpi4py. What it
            loses, refuses or does not answer for is compiled here.
        observer: Told what happens, from threads of the build too.

    Raises:
        ModelError: If the model is at fault.
        OptionError: If an argument or a variable is at fault.
        BuildError: If an operator can not be built, or the network not linked.
    """
    config = Config.from_environment(**options_in(locals()))
    return compile_model(model, config, input_shapes=input_shapes, target=target, executor=executor, observer=observer)


@names_limits(BuildError, "the network can not be built")
def compile_model(
    model: Model,
    config: Config,
    *,
    input_shapes: ShapesGiven | None = None,
    target: str | Level | None = None,
    executor: Executor | None = None,
    observer: Observer | None = None,
    check: Callable[[Sequence[Endpoint]], None] | None = None,
    recognise: Callable[[ModelSource], None] | None = None,
    waits: bool = False,
) -> Network:
    """Build an ONNX model as ``compile`` does.

    What ``check`` raises of its inputs, or ``recognise`` of the model as it was opened, ends it before it is built.

    ``waits``: until what serves further sizes is there too, if the model leaves any open.
    """
    setup = set_up(config, target, observer, executor=executor)
    stores = Stores(setup)
    with rare_collection(), EarlyStart(setup, stores) as early, ExitStack() as end:
        if not stores.may_come and is_surely_new(model, stores.models):
            early.begin()
        working(setup.observer, READING)
        source = open_known(model, stores)
        end.callback(source.release)
        if not stores.may_come and not source.was_built:
            early.begin()
        shapes = as_shapes(input_shapes)
        inputs, signature = inputs_of(source.declaration, shapes, open_ranks=not waits)
        if check is not None:
            check(inputs)
        source.fix()
        if recognise is not None:
            recognise(source)

        made: dict[Shapes, Signatures] = {}

        def signatures(called: Shapes = ()) -> Signatures:
            """Return the binder of input signatures of such ranks, where the model leaves them open."""
            ranked = of_ranks(inputs, called)
            known = tuple(each.shape for each in ranked)
            if known not in made:
                from opbuild.pipeline.signatures import (
                    Signatures,  # most networks have one, and start as they are stored
                )

                parts = source, ranked, shapes, stores, bind_wanted, early.builder, executor
                made[known] = Signatures(*parts, is_open=signature is None, waits=waits)
            return made[known]

        first: Bound | None = None
        if signature is not None:
            only = not (waits or shapes or source.declaration.is_open)
            first = start_whole(source, signature, stores) if only else None
            first = first or signatures().bind(signature)
        if waits:
            signatures().wait()
        return Network(
            source.declaration.name,
            inputs,
            [output.name for output in source.declaration.outputs],
            lambda signature: signatures(signature).bind(signature),
            first=first,
            any_shape=shapes,
            declare=lambda bound: outputs_of(source.declaration, inputs, bound, source.portable),
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
    setup = set_up(config or Config.from_environment(), None, observer, stores_networks=image)
    stores = Stores(setup)

    def binder(_: Shapes) -> Binding:
        wanted = Wanted(stores.images.key_of_graph(graph), lambda _: graph)
        return bind_wanted(wanted, stores, lambda: make_builder(setup, stores))

    inputs = tuple(Endpoint(name, graph.types[name]) for name in graph.inputs)
    signature = tuple(endpoint.type.shape for endpoint in inputs)
    return Network(graph.name, inputs, graph.outputs, binder, first=binder(signature))


@names_limits(BuildError, "the network can not be built")
def compile_source(
    source: Openable,
    config: Config,
    *,
    observer: Observer | None = None,
    image: bool = True,
    follows: Shapes | None = None,
    later: Sequence[Openable] | None = None,
) -> Network:
    """Return a network for whatever gives graphs for the shapes of its inputs; it is built when it is first called.

    Args:
        source: What is called; extents that are -1 in its declaration may differ from call to call.
        config: Settings.
        observer: Told what happens.
        image: Whether to start from a stored network, and to store this one.
        follows: Shapes for which the same was built before, empty if they are not known; None if it was not. It is
            bound by numbers then, if it can be, to what is lowered at that size.
        later: As what it may be asked for again in other sizes, as far as that can be guessed: the kernels that compute
            those are made behind the first call. None if it is not asked for again.

    Raises:
        ModelError: A call, if a node can not be expressed.
        BuildError: A call, if an operator can not be built, or the network not linked.
    """
    from opbuild.pipeline.any_size import AnySize

    setup = set_up(config, None, observer, stores_networks=image)
    stores = Stores(setup)
    behind = stores.behind()
    declared = [each.shape or () for each in source.declaration.inputs]
    is_open = any(FREE in shape for shape in declared)

    def bind_with(stores: Stores, signature: Shapes, sizes: AnySize, *, is_urgent: bool) -> Binding:
        inputs = zip(source.declaration.inputs, signature, strict=True)
        types = {name: TensorType(dtype, shape) for (name, dtype, _), shape in inputs}
        wanted = Wanted(
            stores.images.key(source.declaration.name, source.digest, types) if image else None,
            lambda clock: source.graph(signature, clock),
            lambda: source.edited,
            sizes.bind_stored if is_urgent else lambda: None,
            sizes,
        )
        return bind_wanted(wanted, stores, lambda: make_builder(stores.setup, stores, is_urgent=is_urgent))

    sizes = AnySize(
        source,
        behind,
        declared,
        lambda: make_builder(behind.setup, behind),
        lambda signature, sizes: bind_with(behind, signature, sizes, is_urgent=False),
        is_open=is_open,
        later=later,
    )

    def binder(signature: Shapes) -> Bound:
        bound: Bound | None = sizes.bind(signature)
        if bound is None:
            bound = sizes.bind_now(signature, follows or signature) if follows is not None and is_open else None
            bound = bound or bind_with(stores, signature, sizes, is_urgent=True)
            sizes.begin(signature, bound)
        return bound

    inputs = tuple(Endpoint(name, TensorType(dtype, shape or ())) for name, dtype, shape in source.declaration.inputs)
    return Network(source.declaration.name, inputs, [each.name for each in source.declaration.outputs], binder)
