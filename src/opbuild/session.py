"""Session: what all networks of one ``compile`` share, and how a network starts from its stored image."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opbuild.config import Config, quota_environment
from opbuild.errors import BuildError, OpbuildError, OptionError, TargetError
from opbuild.files.trust import PRIVATE, Trust, trusted
from opbuild.graph import user_operators
from opbuild.graph.types import COLLECTIVES, Array, Node, TensorType
from opbuild.kernel.debug import NO_DEBUG, Debug, make_debug
from opbuild.kernel.networks import ImageKey
from opbuild.kernel.reason import Reason
from opbuild.kernel.target import Target, host_target, parse_target, runs_here
from opbuild.platform.sources import own_sources, own_sources_edited
from opbuild.report import OperatorReport, Report
from opbuild.runtime.executor import Executor
from opbuild.runtime.image import ImageStore
from opbuild.runtime.library import Library
from opbuild.runtime.network import Binding
from opbuild.runtime.record import CHECKED_ORDER, Record
from opbuild.version import __version__

if TYPE_CHECKING:
    from opbuild.builder.result import BuildResult
    from opbuild.events import Event, Observer, Watch
    from opbuild.kernel.interfaces import Claims, Compiler, Store
    from opbuild.runtime.weights import Packer
    from opbuild.store.disk import DiskStore
    from opbuild.store.policy import Policy


@dataclass
class Clock:
    """Milliseconds of each step of the data path, in the order in which they began."""

    steps: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        """Take the time of one step."""
        self.steps.setdefault(step, 0.0)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.steps[step] += 1e3 * (time.perf_counter() - started)


@dataclass(frozen=True)
class Session:
    """Settings and stores.

    Attributes:
        config: Settings.
        target: The machine that code is made for, and runs on.
        observer: Told what happens.
        use_images: Whether networks are started from stored images, and stored.
        rebuilt: Digests of the keys that this session was forced to compile, and need not compile again.
        debug: Which operators are debugged, and how.
        trust: Whose files are believed.
    """

    config: Config
    target: Target
    observer: Observer
    use_images: bool = True
    rebuilt: set[str] = field(default_factory=set)
    debug: Debug = NO_DEBUG
    trust: Trust = PRIVATE

    @cached_property
    def compiler(self) -> Compiler:
        """The compiler; nothing of it is loaded yet."""
        from opbuild.backend.halide.driver import HalideCompiler

        return HalideCompiler()

    @property
    def starts_stored(self) -> bool:
        """Whether a network is started from its stored image if there is one."""
        return self.use_images and not self.config.forces

    @cached_property
    def policy(self) -> Policy:
        """How large the cache folder may grow; its user is told what is wrong with ``op_cache.ini``."""
        from opbuild.store.policy import read_policy, usual_megabytes

        policy, warnings = read_policy(
            self.config.policy_file, quota_environment(), self.trust, usual_megabytes(self.config)
        )
        for warning in warnings:
            self.warn(warning)
        return policy

    @cached_property
    def stores(self) -> tuple[Store, Store]:
        """Where operators and the compiler's runtime library are kept; in memory if the cache is not used.

        What other ranks have is taken from them, unless everything is to be compiled.
        """
        from opbuild.store.memory import MemoryStore
        from opbuild.store.shared import rank_stores

        config = self.config
        if not config.uses_cache:
            return MemoryStore(), MemoryStore()
        if config.forces:
            return self._open_store(config.kernel_meta), self._open_store(config.network_meta)
        return rank_stores(config, self._open_store)

    @property
    def claims(self) -> Claims | None:
        """Who compiles what, among all processes and ranks that may need the same operators."""
        from opbuild.store.claims import FolderClaims
        from opbuild.store.peers import claims_folder

        return FolderClaims(claims_folder(self.config), self.config.rank_id) if self.config.uses_cache else None

    def _open_store(self, folder: Path) -> DiskStore:
        from opbuild.store.disk import DiskStore

        return DiskStore(folder, self.config.device_id, keep_times=self.policy.ages, trust=self.trust)

    def weights(self) -> Packer:
        """Return what packs the constants of one build."""
        return self.images.packer(stored=self.use_images, reuse=self.starts_stored)

    def other_targets(self) -> list[Store]:
        """Return where operators for other targets are kept, for explaining; none where targets share a folder."""
        from opbuild.store.disk import DiskStore

        config = self.config
        if config.op_compiler_cache_dir is None:
            return []
        try:
            folders = sorted(path for path in config.cache_folder.parent.iterdir() if path.is_dir())
        except OSError:
            return []
        return [DiskStore(folder, trust=self.trust) for folder in folders if folder != config.cache_folder]

    def count(self, built: BuildResult) -> None:
        """Add what a build found in the store to the counters that ``opbuild cache stats`` shows."""
        if self.config.uses_cache:
            from opbuild.store.counters import count_build

            times = [(each, built.entries[each.desc].milliseconds) for each in built.decisions]
            count_build(
                self.config.network_meta,
                [time for each, time in times if each.outcome != "built"],
                [(each.reason.code, time) for each, time in times if each.outcome == "built"],
            )

    def age(self) -> None:
        """Let old entries go if the cache folder is larger than it may be; to be called where something was added."""
        if self.config.uses_cache:
            from opbuild.store.ageing import age_after_build
            from opbuild.store.claims import sweep_claims
            from opbuild.store.peers import claims_folder
            from opbuild.store.policy import create_policy_file, usual_megabytes

            sweep_claims(claims_folder(self.config))
            create_policy_file(self.config.policy_file, usual_megabytes(self.config))
            age_after_build(self.config.kernel_meta, self.config.network_meta, self.policy, self.trust)

    @cached_property
    def images(self) -> ImageStore:
        """The stored networks."""
        from opbuild.store.networks import DiskNetworks
        from opbuild.store.weights import DiskWeights

        folder, copies = self.config.network_meta, self.config.copy_weights
        times = self.use_images and self.policy.ages
        networks = DiskNetworks(folder, keep_times=times, trust=self.trust, copies=copies)
        weights = DiskWeights(folder / "weights", trust=self.trust, copies=copies)
        return ImageStore(networks, weights, own_sources(), copies=copies)

    @cached_property
    def compiler_digest(self) -> str:
        """Digest of the installed compiler's bytes; empty if none is installed."""
        from opbuild.kernel.identity import files_digest

        files = self.compiler.files()
        if not files:
            return ""
        try:
            return files_digest(files, self.config.compiler_memo, self.trust)
        except OSError as error:
            path = error.filename or files[0]
            raise BuildError(f"{path} can not be read: {error}", "reinstall the compiler") from error

    def key(self, network: str, model: str, inputs: Mapping[str, TensorType]) -> ImageKey:
        """Return the key of a network's image.

        Args:
            network: The network's name.
            model: Digest of the model.
            inputs: The input signature.
        """
        components = {
            "model": model,
            "inputs": [[name, type_.dtype, list(type_.shape)] for name, type_ in inputs.items()],
            "num_threads": self.config.num_threads,
            "precision": list(self.config.precision),
            "opbuild": __version__,
            "sources": own_sources(),
            "user_operators": user_operators.digest(),
            "target": str(self.target),
        }
        return ImageKey(network, components, self.compiler_digest)

    def made_of(self, key: ImageKey, compiler: str) -> bool:
        """Return whether a network that was built now is what its key says: neither compiler nor opbuild changed.

        Args:
            key: Made before the network was built.
            compiler: Digest of the compiler that built its operators.
        """
        return key.compiler in ("", compiler) and not own_sources_edited()

    def start(self, key: ImageKey, clock: Clock) -> Binding | str:
        """Return a network started from its image, or why it can not be."""
        if not self.starts_stored:
            return "a rebuild was asked for" if self.use_images else "stored networks are not used here"
        with clock("load"):
            image = self.images.load(key)
            if isinstance(image, Reason):
                return image.text
            try:
                executor = self.executor(image.record, image.library, image.constants)
                return Binding(executor, stored_report(image.record, clock))
            except (OpbuildError, ValueError, LookupError, TypeError, ArithmeticError, OSError, MemoryError) as error:
                return f"it can not be started: {error}"

    def executor(self, record: Record, library: bytes, constants: Sequence[Array]) -> Executor:
        """Load a network's library and make the network ready to run.

        Raises:
            LinkError: If the library can not be loaded or lacks a kernel.
        """
        loaded = Library(library, self.config.num_threads) if library else None
        return Executor(record, loaded, constants, evaluate)

    def working(self, step: str) -> Watch:
        """Tell the observer that a step begins; return what tells it how many bytes are done."""
        from opbuild.events import Working

        self.observer(Working(step))
        return lambda done, total: self.observer(Working(step, done, total))

    def warn(self, message: str, not_stored: int = 0) -> None:
        """Tell the observer what the user should know, and how many operators and networks are not stored for it."""
        from opbuild.events import Warned

        self.observer(Warned(message, not_stored))


def open_session(
    config: Config,
    target: str | Target | None,
    observer: Observer | None,
    *,
    use_images: bool = True,
    runs_elsewhere: bool = False,
) -> Session:
    """Return a session.

    Args:
        config: Settings.
        target: The machine to build for; None: this one.
        observer: Told what happens.
        use_images: Whether networks are started from stored images, and stored.
        runs_elsewhere: Whether the target may be another machine, whose code is not run here.

    Raises:
        TargetError: If the target is unknown, or its code can not run on this machine.
        OptionError: If what is said about debugging or the signing key is wrong, or an operator type that is named
            does not exist.
    """
    chosen = host_target() if target is None else parse_target(target) if isinstance(target, str) else target
    problem = runs_here(chosen)
    if problem and not runs_elsewhere:
        message = f"code for {chosen} can not run here: {problem}"
        raise TargetError(message, "leave the target out to build for this machine")
    if config.optypelist_for_implmode:
        from opbuild.graph.operator_types import check_types

        check_types(config.optypelist_for_implmode)
    debug = make_debug(config.op_debug_level, config.op_debug_config, config.debug_dir, config.debug_folder)
    config = _placed(config) if debug.caching else replace(config, op_compiler_cache_mode="disable")
    config = replace(config, soc_version=str(chosen))
    if debug.active and debug.folder.resolve() == config.kernel_meta.resolve():
        raise OptionError(f"debug_dir is {str(debug.folder)!r}, a folder of the cache", "choose another folder")
    config, trust = trusted(config)
    stores_networks = use_images and config.uses_cache and not debug.active
    observer = observer or log_warnings
    if config.by_mpi and config.job_folder is None:
        from opbuild.ranks.world import joined_folder

        config = replace(config, job_folder=joined_folder())
    if config.job_folder is not None:
        from opbuild.ranks.progress import report_progress
        from opbuild.store.peers import announce

        observer = report_progress(config, observer)
        if config.uses_cache:
            announce(config)  # also where nothing is built: other ranks may lack what this one has
    session = Session(config, chosen, observer, stores_networks, debug=debug, trust=trust)
    for warning in config.warnings:
        session.warn(warning)
    return session


def _placed(config: Config) -> Config:
    """Return settings whose cache stays where it is now, wherever the process goes; without one if that is nowhere."""
    try:
        directory = config.op_compiler_cache_dir and Path(os.path.abspath(config.op_compiler_cache_dir))
        return replace(config, cache_path=Path(os.path.abspath(config.cache_path)), op_compiler_cache_dir=directory)
    except OSError as error:
        message = f"the cache is not used, since the working folder can not be found: {error.strerror or error}"
        nowhere = replace(config, cache_path=Path(os.devnull), op_compiler_cache_dir=None)
        return replace(nowhere, op_compiler_cache_mode="disable", warnings=(*config.warnings, message))


def log_warnings(event: Event) -> None:
    """Log warnings, each once in a process, where nobody observes the build."""
    from opbuild.events import Warned

    if isinstance(event, Warned) and event.message not in _LOGGED:
        import logging

        _LOGGED.add(event.message)
        logging.getLogger("opbuild").warning(event.message)


_LOGGED: set[str] = set()


def evaluate(node: Node, inputs: Sequence[Array | None], opset: int) -> Sequence[Array]:
    """Evaluate a node on the host backend, which is loaded when it is first needed, or with the other ranks."""
    if node.domain == COLLECTIVES:
        from opbuild.ranks.world import evaluate_collective

        return evaluate_collective(node, inputs)
    return _host()(node, inputs, opset)


@lru_cache(maxsize=1)
def _host() -> Callable[[Node, Sequence[Array | None], int], Sequence[Array]]:
    from opbuild.backend.host.evaluate import evaluate as evaluate_on_host

    return evaluate_on_host


def report_notes(
    operators: Sequence[OperatorReport], notes: Mapping[str, Any], checked: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what a record keeps of a build for later reports, and the kernels whose order of tasks is checked."""
    return ({CHECKED_ORDER: list(checked)} if checked else {}) | {
        "operators": [[operator.name, list(operator.nodes), operator.milliseconds] for operator in operators],
        "lowering": {str(node): str(note) for node, note in notes.items()},
    }


def stored_report(record: Record, clock: Clock) -> Report:
    """Return the report of a network that started from its image."""
    operators = tuple(
        OperatorReport(str(name), "reused", "in the stored network", tuple(map(str, nodes)), float(milliseconds))
        for name, nodes, milliseconds in record.notes["operators"]
    )
    return make_report(record, operators, record.notes["lowering"], clock)


def make_report(
    record: Record,
    operators: Sequence[OperatorReport],
    notes: Mapping[str, Any],
    clock: Clock,
    image_reason: str | None = None,
) -> Report:
    """Return a report; ``image_reason`` says why the network did not start from its image, None that it did."""
    host: dict[str, int] = {}
    for step in record.steps:
        if not hasattr(step, "symbol"):
            host[step.node.op_type] = host.get(step.node.op_type, 0) + 1
    return Report(
        network=record.name,
        operators=tuple(operators),
        host=host,
        steps=clock.steps,
        image=image_reason is None,
        image_reason=image_reason or "",
        notes=notes,
        arena=record.arena_size,
        constants=sum(constant.nbytes for constant in record.constants),
    )
