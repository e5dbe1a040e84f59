"""The functions that users call: a model, a graph or another source becomes a network, on the path of a session."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from opbuild.arguments import ShapesGiven, as_shapes, checks_arguments
from opbuild.config import FIRST, Config, options_in
from opbuild.errors import BuildError
from opbuild.events import COMPILE, READING, Observer, step, working
from opbuild.frontend.models.declaration import inputs_of, outputs_of
from opbuild.frontend.models.source import Model, ModelSource
from opbuild.graph.types import Graph, TensorType
from opbuild.pipeline.setup import Setup, set_up
from opbuild.pipeline.source import GraphSource, Source
from opbuild.platform.calls import rare_collection
from opbuild.platform.limits import names_limits
from opbuild.platform.records import replace
from opbuild.programs import ModelPrograms, Programs
from opbuild.report import Report
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.network import Network
from opbuild.session import Session
from opbuild.target.level import BuildTarget, Level

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["Network", "Report", "compile", "compile_graph", "compile_source"]


@checks_arguments
@names_limits(BuildError, "the network cannot be built")
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
    wait: bool = False,
) -> Network:
    """Build an ONNX model, operator by operator, and return it ready to call.

    Operators that the store has are not built again; a network that was built before starts from its stored image. One
    whose operators must be compiled is computed by others until they are, behind its calls: ``report.pending``.

    Args:
        model: A path, the bytes of a file, or an ``onnx.ModelProto``.
        input_shapes: Shapes by input name, where the model leaves them open or another is wanted; None or -1 leaves an
            extent open. Inputs that are open, or named here, may have other shapes from call to call; a new signature
            is bound when it is first seen.
        cache_path: Folder that holds ``rank_<id>/kernel_meta`` (default ``OPBUILD_CACHE``, else
            ``MS_COMPILER_CACHE_PATH``, else the user's own store: ``$XDG_CACHE_HOME/opbuild``, else
            ``~/.cache/opbuild``).
        num_threads: Threads that run the network (default ``OPBUILD_NUM_THREADS``, else the cores).
        copy_weights: Read weights that the cache has into memory of this process, where nobody can change or cut them,
            instead of mapping them (default ``OPBUILD_COPY_WEIGHTS``, else not).
        workers: Operators compiled at once (default ``MS_BUILD_PROCESS_NUM``, else the cores).
        forbid_compile: Nothing is compiled (default ``OPBUILD_FORBID_COMPILE``); a lower level's operators serve
            where the level's own are missing, and the report says so.
        target: The level to build for, such as ``x86-64-v3``, or a class of devices that was registered
            (``target.devices``); default this machine's level.
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
        wait: Return when the network's own operators are compiled (default ``OPBUILD_FIRST``, else not).

    Raises:
        ModelError: If the model is at fault.
        OptionError: If an argument or a variable is at fault.
        BuildError: If an operator cannot be built, or the network not linked.
    """
    config = Config.from_environment(**options_in(locals()))
    config = config.waiting() if wait else config
    return compile_model(model, config, input_shapes=input_shapes, target=target, executor=executor, observer=observer)


@names_limits(BuildError, "the network cannot be built")
def compile_model(
    model: Model,
    config: Config,
    *,
    input_shapes: ShapesGiven | None = None,
    target: str | BuildTarget | None = None,
    executor: Executor | None = None,
    observer: Observer | None = None,
    check: Callable[[Sequence[Endpoint]], None] | None = None,
    recognise: Callable[[ModelSource], None] | None = None,
    waits: bool = False,
    opens: bool = False,
) -> Network:
    """Build an ONNX model as ``compile`` does.

    What ``check`` raises of its inputs, or ``recognise`` of the model as it was opened, ends it before it is built.

    ``opens``: what serves further sizes is built, too, if the model leaves any open. ``waits``: the same, and until its
    own kernels are there.
    """
    config = replace(config, first=FIRST[2]) if waits else config
    session, shapes = Session(set_up(config, target, observer, executor=executor)), as_shapes(input_shapes)
    with step(COMPILE) as named, rare_collection(), session.preparing(model), ExitStack() as end:
        working(session.setup.observer, READING)
        source = session.open(model)
        end.callback(source.release)
        named(source.declaration.name)
        if not source.was_built:
            session.prepare()
        inputs, signature = inputs_of(source.declaration, shapes, open_ranks=not waits)
        if check is not None:
            check(inputs)
        source.fix()
        if recognise is not None:
            recognise(source)
        source.keeps = is_open = signature is None or ((waits or opens) and source.declaration.is_open)
        programs = ModelPrograms(session, source, inputs, shapes, is_open=is_open)

        def declare(bound: Sequence[Endpoint]) -> Sequence[Endpoint]:
            with source.reading():
                return outputs_of(source.declaration, inputs, bound, source.graph)

        return _network_of(session.setup)(
            source.declaration.name,
            inputs,
            [output.name for output in source.declaration.outputs],
            programs.bind,
            first=None if signature is None else programs.bind(signature),
            any_shape=shapes,
            declare=declare,
        )


@checks_arguments
@names_limits(BuildError, "the network cannot be built")
def compile_graph(
    graph: Graph,
    *,
    config: Config | None = None,
    observer: Observer | None = None,
    image: bool = True,
    target: str | None = None,
) -> Network:
    """Build a graph and return it ready to call.

    Args:
        graph: A network for one input signature.
        config: Settings; None reads the environment.
        observer: Told what happens.
        image: Whether to start from a stored network, and to store this one.
        target: As of ``compile``.

    Raises:
        ModelError: If a node cannot be expressed.
        BuildError: If an operator cannot be built, or the network not linked.
    """
    session = Session(set_up(config or Config.from_environment(), target, observer, stores_networks=image))
    source = GraphSource(graph, is_stored=image)
    inputs = tuple(Endpoint(name, graph.types[name]) for name in graph.inputs)
    signature = tuple(endpoint.type.shape for endpoint in inputs)
    bind = partial(session.bind, source)
    return _network_of(session.setup)(graph.name, inputs, graph.outputs, bind, first=bind(signature))


def _network_of(setup: Setup) -> Callable[..., Network]:
    """Return the maker of networks for the target of a build."""
    if setup.device is None:
        return Network
    from opbuild.runtime.devices.network import DeviceNetwork  # most networks are the CPU's

    return partial(DeviceNetwork, setup.device.device)


@names_limits(BuildError, "the network cannot be built")
def compile_source(
    source: Source,
    config: Config,
    *,
    observer: Observer | None = None,
    image: bool = True,
    was_built: bool = False,
    reopens: bool = False,
    device: str | None = None,
) -> Network:
    """Return a network for whatever gives graphs for the shapes of its inputs; it is built when it is first called.

    Args:
        source: What is called; extents that are -1 in its declaration may differ from call to call.
        config: Settings.
        observer: Told what happens.
        image: Whether to start from a stored network, and to store this one.
        was_built: Whether the same was built for one size before.
        reopens: Whether the same may come again with open extents, as another source.
        device: The class of devices on which the caller's arrays lie; None: they are the host's.

    Raises:
        ModelError: A call, if a node cannot be expressed.
        BuildError: A call, if an operator cannot be built, or the network not linked.
    """
    setup = set_up(config, device, observer, stores_networks=image)
    session = Session(replace(setup, arrays_on_device=device is not None))
    declaration = source.declaration
    programs = Programs(session, source, is_open=declaration.is_open, was_built=was_built, reopens=reopens)
    inputs = tuple(Endpoint(name, TensorType(dtype, shape or ())) for name, dtype, shape in declaration.inputs)
    names = [each.name for each in declaration.outputs]
    return _network_of(setup)(declaration.name, inputs, names, programs.bind)
