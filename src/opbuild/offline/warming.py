"""Warming: everything that models need is built and stored before anybody waits for it.

What runs on this machine is built as ``compile`` builds it, with what serves further sizes. For levels that do not run
here networks are built and stored, and not loaded. With an executor the operators of all models are compiled first,
together, so that its workers have enough to do; what follows finds them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from opbuild.api import compile_model
from opbuild.arguments import ShapesGiven, as_variants, checks_arguments
from opbuild.config import Config, options_in
from opbuild.errors import BuildError, CompileError, OpbuildError, OptionError, ShapeError, TargetError
from opbuild.events import Observer
from opbuild.frontend.models.declaration import inputs_of
from opbuild.frontend.models.shapes import Given, own_shapes
from opbuild.frontend.models.source import Model, open_model
from opbuild.graph.breaks import is_tensor
from opbuild.kernel.opdesc import OpDesc
from opbuild.offline.kernels import ModelKernels, kernels_of
from opbuild.pipeline.setup import Setup, set_up
from opbuild.pipeline.stores import Stores
from opbuild.platform.background import BACKGROUND_WRITER
from opbuild.platform.limits import names_limits
from opbuild.platform.records import dataclass, replace
from opbuild.report import Clock, Report
from opbuild.runtime.reports import make_report
from opbuild.session import Session
from opbuild.target.devices import device_class
from opbuild.target.host import host_problem, parse_target
from opbuild.target.level import BuildTarget
from opbuild.text.plural import counted

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from opbuild.frontend.models.recorded import RecordedSize
    from opbuild.frontend.models.source import ModelSource
    from opbuild.kernel.networks import NetworkKey
    from opbuild.runtime.binding import Shapes


@checks_arguments
@names_limits(BuildError, "the networks cannot be built")
def warm(
    models: Sequence[Model],
    *,
    shapes: Sequence[ShapesGiven] | ShapesGiven | None = None,
    targets: Sequence[str] | None = None,
    executor: Executor | None = None,
    cache_path: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    op_compiler_cache_dir: str | os.PathLike[str] | None = None,
    op_select_implmode: str | None = None,
    optypelist_for_implmode: str | Sequence[str] | None = None,
    precision_mode: str | None = None,
    remote: str | None = None,
    observer: Observer | None = None,
) -> tuple[Report, ...]:
    """Build everything that models need, and store it, without running any.

    What is built is written to the store that others share, too, if there is one.

    Args:
        models: Paths, the bytes of files, or ``onnx.ModelProto``.
        shapes: Shapes by input name where models leave them open, or several of these: each model is built for each.
            Names that a model does not have are another's.
        targets: The levels to build for, such as ``x86-64-v3``, and classes of devices that were registered (default
            this machine's level).
        executor: Compiles instead of this host; see ``compile``.
        cache_path: As of ``compile``, and so are the following.
        workers: Operators compiled at once on this host.
        op_compiler_cache_dir: Folder with a folder for each level, instead of ``cache_path``.
        op_select_implmode: ``high_performance`` (the default) or ``high_precision``.
        optypelist_for_implmode: Operator types that ``op_select_implmode`` is for.
        precision_mode: ``must_keep_origin_dtype`` (the default) or ``force_fp32``.
        remote: URL of a store that others share; it is written to unless ``OPBUILD_REMOTE_MODE`` is ``off``.
        observer: Told what happens, from threads of the build too.

    Returns:
        What was done for each model, for each level and shape, in this order.

    Raises:
        ModelError, BuildError: If a model is at fault or cannot be built, once all others are; of several the first.
        OptionError: If an argument or a variable is at fault.
    """
    config = Config.from_environment(**options_in(locals()))
    variants = as_variants([shapes] if isinstance(shapes, Mapping) else shapes, "shapes")
    return warm_models(models, config, variants, targets, executor=executor, observer=observer)


def warm_models(
    models: Sequence[Model],
    config: Config,
    variants: Sequence[Given] = (),
    targets: Sequence[str] | None = None,
    *,
    recorded: Sequence[RecordedSize] = (),
    executor: Executor | None = None,
    observer: Observer | None = None,
) -> tuple[Report, ...]:
    """Do the work of ``warm``, with settings, also for sizes that were recorded."""
    if not config.uses_cache:
        raise OptionError("nothing can be warmed without a store", "leave the mode 'disable' and debugging out")
    if config.remote_mode != "off":
        config = replace(config, remote_mode="write", remote_checks=True)
    setups = [
        set_up(config, target, observer, runs_elsewhere=True, executor=executor) for target in parsed_targets(targets)
    ]
    wanted = requests_of(models, variants, setups, recorded)
    if executor is not None:
        for setup in setups:
            _build_together([each for each in wanted if each.setup is setup], setup)
    reports, failed = list[Report](), list[tuple[NetworkRequest, OpbuildError]]()
    for each in wanted:
        try:
            reports.append(_build_native(each) if _runs_here(each.setup) else _cross_build(each))
        except OpbuildError as error:
            failed.append((each, error))
    BACKGROUND_WRITER.finish()
    for setup in setups:
        shared = Stores(setup).remote
        if shared is not None and (warned := shared.wait_for_uploads()) is not None:
            setup.observer(warned)
    if failed:
        raise _failure(failed, len(wanted))
    return tuple(reports)


def requests_of(
    models: Sequence[Model], variants: Sequence[Given], setups: Sequence[Setup], recorded: Sequence[RecordedSize] = ()
) -> list[NetworkRequest]:
    """Return the networks of models at some shapes, and at those that were recorded of them, for each setup.

    Raises:
        OptionError: If a name of the shapes is no model's input.
    """
    chosen = zip(models, own_shapes(models, variants, Stores(setups[0]).models, recorded), strict=True)
    return [NetworkRequest(model, own, setup) for model, choices in chosen for own in choices for setup in setups]


@dataclass(frozen=True, eq=False)
class NetworkRequest:
    """A model for one level and one choice of shapes."""

    model: Model
    shapes: Given
    setup: Setup

    def __str__(self) -> str:
        what = str(self.model) if isinstance(self.model, (str, os.PathLike)) else "a model"
        return f"{what} for {self.setup.target}"


@dataclass(frozen=True, eq=False)
class OpenedModel:
    """The same, with the opened model."""

    source: ModelSource
    signature: Shapes
    session: Session

    @property
    def key(self) -> NetworkKey:
        """The key of the network among stored ones."""
        types = {name: each for name, each in self.source.types(self.signature).items() if is_tensor(each)}
        return self.session.stores.networks.key(self.source.declaration.name, self.source.digest, types)

    @property
    def kernels(self) -> ModelKernels:
        """The kernels that it needs; see ``kernels_of``."""
        return kernels_of(self.source, self.signature, self.session)


def parsed_targets(targets: Sequence[str] | None) -> list[BuildTarget]:
    """Return the targets that some texts name, each once; without any this machine's level.

    Raises:
        OptionError: If one is unknown.
    """
    found = []
    for text in targets or ["host"]:
        try:
            found.append(parse_target(text))
        except TargetError as error:
            raise OptionError(f"targets has {text!r}: {error.message}", error.hint) from error
    return list(dict.fromkeys(found))


def opened_for(wanted: NetworkRequest) -> OpenedModel:
    """Open a model for its level and shapes.

    Raises:
        ModelError: If it cannot be read, or a shape is open.
    """
    session = Session(wanted.setup)
    source = open_model(wanted.model, session.stores.models)
    _, signature = inputs_of(source.declaration, wanted.shapes)
    if signature is None:
        open_ = (name for name, _, shape in source.declaration.inputs if name not in wanted.shapes)
        raise ShapeError(
            f"input {next(open_)!r} has an open shape",
            "give it: shapes={'name': (...)}",
            command='give it: --shapes "name:..."',
        )
    return OpenedModel(source, signature, session)


def _build_together(wanted: Sequence[NetworkRequest], setup: Setup) -> None:
    """Build the operators that networks for one level need, at once; those of models at fault are left out."""
    needed: dict[OpDesc, tuple[str, ...]] = {}
    for each in wanted:
        with suppress(OpbuildError):  # told where the network itself is built
            opened = opened_for(each)
            if opened.session.stores.networks.stored(opened.key, Clock()) is None:
                needed = {**opened.kernels.all, **needed}
    session = Session(setup)
    with session.builder() as builder, suppress(CompileError):  # told of the networks that need it
        session.stores.count(builder.build(needed, counted(len(wanted), "network")))


def _runs_here(setup: Setup) -> bool:
    """Return whether code for a setup's target runs on this machine."""
    if host_problem(setup.level) is not None:
        return False
    try:
        if setup.device is not None:
            device_class(setup.device.device).require()
    except TargetError:
        return False
    return True


def _build_native(wanted: NetworkRequest) -> Report:
    """Build a network as who runs it would, and the programs that serve further sizes of it."""
    opened = opened_for(wanted)
    setup = wanted.setup
    network = compile_model(
        wanted.model,
        setup.config,
        input_shapes=wanted.shapes,
        target=setup.target,
        executor=setup.executor,
        observer=setup.observer,
        waits=True,
    )
    if any(executor.follows is not None for executor in network.runners):
        _build_behind(opened)
    return network.report


def _cross_build(wanted: NetworkRequest) -> Report:
    """Build and store a network whose code does not run on this machine."""
    setup, clock, opened = wanted.setup, Clock(), opened_for(wanted)
    source, session = opened.source, opened.session
    stored = session.stores.networks.stored(opened.key, clock)
    if stored is not None:
        return stored
    walked = source.walk(opened.signature, clock)
    with session.builder() as builder:
        packer = session.stores.packer(source)
        (network,) = session.build(session.plan([walked.graph], clock), builder, packer, clock)
    session.keep(opened.key, source, network.followed_by(walked.follows), packer, clock)
    source.remember()
    if walked.follows is not None:
        _build_behind(opened)
    return make_report(network.record, network.operators, clock, setup.level_text, "it is for other machines")


def _build_behind(opened: OpenedModel) -> None:
    """Build the kernels of later segments; the networks of these are stored where they are met."""
    with opened.session.builder() as builder:
        opened.session.stores.count(builder.build(opened.kernels.behind, opened.source.declaration.name))


def _failure(failed: Sequence[tuple[NetworkRequest, OpbuildError]], count: int) -> OpbuildError:
    """Return the first error, which says how many networks there are that have one."""
    first, error = failed[0]
    others = "" if len(failed) == 1 else f"{len(failed)} of {counted(count, 'network')} cannot be built; the first, "
    return type(error)(f"{others}{first}: {error.message}", error.hint, command=error.command_hint)
