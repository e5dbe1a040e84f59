"""Setup: the checked request of one build: its settings together, the machine, who watches."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from opbuild.config import FIRST, Config
from opbuild.errors import OpbuildError, OptionError, TargetError
from opbuild.events import Observer, Warned, log_warnings, tell_of_environment, with_subscribers
from opbuild.kernel.debug import NO_DEBUG, Debug, make_debug
from opbuild.platform.files.trust import PRIVATE, Trust, trusted
from opbuild.platform.locks import lazy_property
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, replace
from opbuild.store.machine_class import shipped_database
from opbuild.target.host import compared, host_level, host_problem
from opbuild.target.level import BuildTarget, DeviceTarget, Level, Target
from opbuild.text.plural import counted

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from opbuild.kernel.interfaces import Compiler
    from opbuild.store.pack import Pack


@dataclass(frozen=True)
class Setup:
    """The settings of one build.

    Attributes:
        config: Settings.
        level: The level that code is made for.
        observer: Told what happens.
        stores_networks: Whether networks are stored whole, and started from what is stored.
        debug: Which operators are debugged, and how.
        trust: Whose files are believed.
        given_compiler: Makes the operators; None: the usual one.
        requested: The level that was requested, where ``level`` is a lower one that serves instead.
        executor: Compiles instead of this host; None: this host alone.
        uses_tuning_database: Whether what tuning found decides about variants.
        device: What runs all that it has kernels for; None: the CPU runs all.
        arrays_on_device: Whether the caller's arrays lie there.
    """

    config: Config
    level: Level
    observer: Observer
    stores_networks: bool = True
    debug: Debug = NO_DEBUG
    trust: Trust = PRIVATE
    given_compiler: Compiler | None = None
    requested: Level | None = None
    executor: Executor | None = None
    uses_tuning_database: bool = True
    device: Target | None = None
    arrays_on_device: bool = False

    @lazy_property
    def compiler(self) -> Compiler:
        """The compiler of the operators; a start of a stored network does not load it."""
        from opbuild.backend.compilers import make_compiler

        return self.given_compiler or make_compiler()

    @lazy_property
    def device_kernels(self) -> list[str]:
        """The names in keys of the device's kernels: their target, and a digest of the compiler's bytes.

        Without the compiler nothing but what is stored can be had of it: what compiled that is remembered.
        """
        if self.device is None:
            return []
        from opbuild.backend.compilers import make_compiler
        from opbuild.kernel.identity import files_digest, memo_of, remembered

        files = make_compiler(self.device.device).files()
        memo = memo_of(self.device.device, self.config.compiler_memo)
        if files:
            return [self.device.name, files_digest(files, memo, self.trust)]
        known = None if memo is None else remembered(memo, self.trust)
        return [self.device.name, "" if known is None else known.digest]

    @property
    def device_key(self) -> Mapping[str, list[str]]:
        """The component of keys of networks that says of a device what decides them; none for the CPU alone."""
        return {"device": self.device_kernels + ["arrays"] * self.arrays_on_device} if self.device is not None else {}

    @property
    def target(self) -> BuildTarget:
        """The level, with the device if there is one."""
        return self.level if self.device is None else DeviceTarget(self.level, self.device)

    @property
    def starts_stored(self) -> bool:
        """Whether a network is started from the store if it is there."""
        return self.stores_networks and not self.config.forces

    @property
    def has_tuning_database(self) -> bool:
        """Whether there is a tuning database, and it decides."""
        shipped = (
            self.uses_tuning_database and self.config.uses_shipped_bank and shipped_database(self.level.name).is_file()
        )
        return shipped or self.has_own_tuning_database

    @property
    def has_own_tuning_database(self) -> bool:
        """Whether there is one of the user's; a path that cannot be one is none."""
        with suppress(OSError):
            return self.uses_tuning_database and self.config.tune_bank.is_file()
        return False

    @property
    def why_not_compiled(self) -> str:
        """The reason that nothing can be compiled; empty if something can."""
        if self.config.forbid_compile:
            return "compiling is forbidden"
        return "" if self.compiler.library() is not None else f"the compiler {self.compiler.name} is not installed"

    def warn(self, message: str, error: BaseException) -> None:
        """Tell of an error that stops nothing."""
        told = str(error) if isinstance(error, OpbuildError) else f"{type(error).__name__}: {error}"
        self.observer(Warned(f"{message}: {told}"))

    @property
    def answers_first(self) -> bool:
        """Whether a network is computed by the kernels that are there until its own are, or where these cannot be."""
        is_plain = self.device is None and not self.config.forces and not self.debug.active
        answers = FIRST[:2] if self.why_not_compiled else FIRST[:1]
        return is_plain and self.config.first in answers

    @property
    def uses_pack(self) -> bool:
        """Whether operators are taken from the release's pack."""
        return self.config.uses_pack and self._may_use_packs

    @property
    def model_packs(self) -> tuple[Path, ...]:
        """The files of packs from which operators are taken besides."""
        return self.config.model_packs if self._may_use_packs else ()

    @property
    def _may_use_packs(self) -> bool:
        return not self.config.fills_cache or bool(self.why_not_compiled)

    @property
    def level_text(self) -> str:
        """The level, and if it is lower than the one that was requested, that one and why it does not serve."""
        return compared(self.target, self.requested or self.level, self.why_not_compiled if self.requested else "")

    def level_text_with(self, borrowed: int) -> str:
        """Return the same for a network of whose operators so many are lower levels'."""
        more = f", with {counted(borrowed, 'operator')} of lower levels ({self.why_not_compiled})" if borrowed else ""
        return self.level_text + more

    def lower(self) -> list[Setup]:
        """Return the setups whose code may serve instead, none if code can be made: untuned, and of lower levels."""
        if not self.config.uses_cache or self.config.forces or self.debug.active or not self.why_not_compiled:
            return []
        setups = [replace(self, uses_tuning_database=False)] if self.has_tuning_database else []
        for level in self.level.lower():
            config, trust = trusted(replace(self.config, soc_version=level.name))
            if config.uses_cache:
                setups.append(
                    replace(
                        self,
                        config=config,
                        level=level,
                        trust=trust,
                        requested=self.requested or self.level,
                        uses_tuning_database=False,
                    )
                )
        return setups


def release_pack(setup: Setup) -> Pack | None:
    """Return the release's pack for a build; None if it is not used."""
    from opbuild.store.pack import Pack

    return Pack(setup.level.name) if setup.uses_pack else None


def set_up(
    config: Config,
    target: str | BuildTarget | None,
    observer: Observer | None,
    *,
    stores_networks: bool = True,
    runs_elsewhere: bool = False,
    compiler: Compiler | None = None,
    executor: Executor | None = None,
) -> Setup:
    """Check the request of a build, and tell the observer of problems that stop nothing.

    Without a target it is for this machine; with ``runs_elsewhere`` it may be for another, whose code is not run here.
    Without an observer warnings are logged, and without a compiler it is the usual one. What must be compiled goes to
    the executor if there is one.

    Raises:
        TargetError: If the target is unknown, or its code cannot run on this machine.
        OptionError: If what is said about debugging or the signing key is wrong, or an operator type that is named
            does not exist.
    """
    environment = config.warnings
    chosen = host_level() if target is None else _named(target) if isinstance(target, str) else target
    level, device = chosen.level, chosen.device if isinstance(chosen, DeviceTarget) else None
    if (problem := host_problem(level)) and not runs_elsewhere:
        message = f"code for {level} cannot run here: {problem}"
        raise TargetError(message, "leave the target out to build for this machine")
    if device is not None and not runs_elsewhere:
        from opbuild.target.devices import device_class  # most builds are for the CPU alone

        device_class(device.device).require()
    if config.optypelist_for_implmode:
        from opbuild.graph.passes.infer import check_types

        check_types(config.optypelist_for_implmode)
    debug = make_debug(config.op_debug_level, config.op_debug_config, config.debug_dir, config.debug_folder)
    config = _with_absolute_cache(config) if debug.caching else replace(config, op_compiler_cache_mode="disable")
    config = replace(config, soc_version=level.name)
    if debug.active and debug.folder.resolve() == config.kernel_meta.resolve():
        raise OptionError(f"debug_dir is {str(debug.folder)!r}, a folder of the cache", "choose another folder")
    config, trust = trusted(config)
    stores_networks = stores_networks and (config.uses_folder or config.names_remote) and not debug.active
    if config.log or "logging" in sys.modules:
        from opbuild.monitoring.log import use_logging

        use_logging(config.log)
    config, observer = _joined(config, with_subscribers(observer or log_warnings))
    tell_of_environment(environment, observer)
    for warning in config.warnings[len(environment) :]:
        observer(Warned(warning))
    return Setup(config, level, observer, stores_networks, debug, trust, compiler, executor=executor, device=device)


def _named(target: str) -> BuildTarget:
    from opbuild.target.host import parse_target  # most builds are for this machine

    return parse_target(target)


def _joined(config: Config, observer: Observer) -> tuple[Config, Observer]:
    """Return settings and observer of one rank of a job, whose other ranks are told of its cache and its progress."""
    if config.by_mpi and config.job_folder is None:
        from opbuild.ranks.world import joined_folder

        config = replace(config, job_folder=joined_folder())
    if config.job_folder is not None:
        from opbuild.ranks.progress import report_progress
        from opbuild.store.peers import announce, job_problem

        problem = job_problem(config.job_folder)
        if problem:
            warnings = (*config.warnings, f"the folder of the job is not used: {problem}")
            return replace(config, job_folder=None, warnings=warnings), observer
        observer = report_progress(config, observer)
        if config.uses_folder:
            announce(config)  # also where nothing is built: other ranks may lack what this one has
    return config, observer


def _with_absolute_cache(config: Config) -> Config:
    """Return settings whose cache stays where it is now, wherever the process goes; without one if that is nowhere."""
    try:
        directory = config.op_compiler_cache_dir and Path(os.path.abspath(config.op_compiler_cache_dir))
        return replace(config, cache_path=Path(os.path.abspath(config.cache_path)), op_compiler_cache_dir=directory)
    except OSError as error:
        message = f"the cache is not used, since the working folder cannot be found: {error.strerror or error}"
        nowhere = replace(config, cache_path=Path(os.devnull), op_compiler_cache_dir=None)
        return replace(nowhere, op_compiler_cache_mode="disable", warnings=(*config.warnings, message))
