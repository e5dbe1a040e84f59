"""The builder: from descriptors to entries, compiling only those that the store lacks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING

from opbuild.builder.client import IDLE_SERVER, CompileServer
from opbuild.builder.explain import Explainer
from opbuild.builder.job import FORCED, BuildResult, OperatorJob, absent_error, forbidden_error, remember_origins
from opbuild.builder.work import Server, SeveralWorks, UnderWay, Work, of_device, without_end
from opbuild.config import Config
from opbuild.errors import BuildError
from opbuild.events import BuildStarted, CompileStarted, Event, Observer, Waiting, Warned, ignore
from opbuild.kernel.debug import NO_DEBUG, Debug, flags_of
from opbuild.kernel.entry import Entry
from opbuild.kernel.identity import FilesState, files_state, identify, memo_of
from opbuild.kernel.interfaces import Claims, Compiler, Found, Missing, Release, Store, look_up
from opbuild.kernel.key import CompilerIdentity, Key, make_key
from opbuild.kernel.opdesc import OpDesc, needs_runtime, runtime_desc
from opbuild.kernel.reason import Reason
from opbuild.platform.background import Background
from opbuild.platform.files.trust import make_trust
from opbuild.platform.records import NamedTuple, dataclass, field
from opbuild.target.level import Level, Target

if TYPE_CHECKING:
    from concurrent.futures import Executor

NOTHING: Mapping[OpDesc, tuple[str, ...]] = {}

LOOKED_AT = 2000
"""Files of one's own store looked at for an operator: a millisecond."""


class LowerLevel(NamedTuple):
    """A level below a builder's own, whose operators serve where nothing can be compiled.

    Attributes:
        level: The level.
        operators: Where its operators are kept.
        runtimes: Where its runtime library is kept.
        text: What to call it and why it serves.
    """

    level: Level
    operators: Store
    runtimes: Store
    text: str


@dataclass(eq=False, repr=False)
class Builder:
    """Builds operators. Close it, or use it in a ``with`` statement, to let go of its compile server.

    Attributes:
        store: Where operators are kept.
        compiler: What makes objects; it works in a process of its own.
        target: What the code is for.
        config: Workers, time-outs, whether compiling is forbidden, and which device builds.
        observer: Told what happens, from the thread that compiles; it must not raise.
        runtime_store: Where the compiler's runtime library is kept; None if objects never need it.
        provided: What networks are linked with besides: symbols that need no runtime library.
        force: Compile even what is stored, and replace it.
        rebuilt: Digests of the keys that were compiled already, and are not forced again; added to.
        others: Returns stores of other levels, to explain what ``store`` has nothing like.
        debug: Which operators are debugged, and how.
        write_debug: Writes the files of debugging, names and contents; returns None, or why the storage refused.
        claims: Who compiles what, where other processes may need the same operators; None asks nobody. A forced build
            never asks.
        lower: Returns the levels below whose operators serve where nothing can be compiled, the highest first.
        release: What the release brings; its compiler is the one where none is installed or remembered. None: nothing.
        is_urgent: Whether anybody waits; else one operator at a time is compiled, at low priority.
        executor: Compiles instead of this host, which does what the executor does not; None: this host alone.
        devices: What builds the operators of other classes of devices.
    """

    store: Store
    compiler: Compiler
    target: Target
    config: Config
    observer: Observer = ignore
    runtime_store: Store | None = None
    provided: Collection[str] = ()
    force: bool = False
    rebuilt: set[str] = field(default_factory=set)
    others: Callable[[], Sequence[Store]] = list
    debug: Debug = NO_DEBUG
    write_debug: Callable[[Sequence[tuple[str, bytes]]], str | None] | None = None
    claims: Claims | None = None
    lower: Callable[[], Sequence[LowerLevel]] = tuple
    release: Release | None = None
    is_urgent: bool = True
    executor: Executor | None = None
    devices: Mapping[str, Builder] = MappingProxyType({})

    def __post_init__(self) -> None:
        self.claims = None if self.force else self.claims
        self._lock = threading.Lock()
        self._server: CompileServer | None = None
        self._found: dict[OpDesc, OperatorJob] = {}  # until a build begins what is there is looked up once
        self._adopted: set[str] = set()  # keys of operators that were found by what their sources define
        self._identity: Background[CompilerIdentity] | None = None
        self._files: FilesState = ()  # the compiler's, before it was identified

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def warm_up(self) -> None:
        """Start the slow parts before the descriptors are known.

        That is identifying the compiler, and the compile server. A server that turns out not to be needed is ended by
        ``start``; one that cannot be started is an error only where it is needed.
        """
        self._identify_in_background()
        with self._lock, contextlib.suppress(BuildError):
            forbidden = self.config.forbid_compile or self.compiler.library() is None
            if self._server is None and self.executor is None and not forbidden:
                self._server = self._new_server()

    def close(self) -> None:
        """Let go of the compile server: it rests for the next builder if it has worked, and ends if it has not."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            IDLE_SERVER.keep(server)  # which ends one that was not started there
        for each in self.devices.values():
            each.close()

    def key(self, desc: OpDesc, debug: Sequence[str] = ()) -> Key:
        """Return an operator's key; ``debug`` are the debug options that it is compiled with.

        Raises:
            BuildError: If the compiler is not installed.
        """
        return make_key(desc, self.target, self.identity(), self.compiler.sources_digest(desc), flags_of(debug))

    def identity(self) -> CompilerIdentity:
        """Return the identity of the compiler.

        Raises:
            BuildError: If it is not installed.
        """
        return self._identify_in_background().result()

    def use_identity(self, identity: CompilerIdentity) -> None:
        """Take the compiler's identity as known, so that no file remembers it."""
        self._identity = Background(lambda: identity, "opbuild-identify")

    def plan(self, needed: Mapping[OpDesc, tuple[str, ...]]) -> tuple[OperatorJob, ...]:
        """Return for each operator its key and whether it must be compiled, without compiling anything.

        Args:
            needed: Each distinct operator with the nodes that need it (``Program.descriptors()``).

        Raises:
            BuildError: If the compiler is not installed.
        """
        new = {desc: nodes for desc, nodes in needed.items() if desc not in self._found}
        jobs = {job.desc: job for job in self._plan(of_device(new, self.target.device))}
        for name, builder in self.devices.items():
            jobs |= {job.desc: job for job in builder.plan(of_device(new, name))}
        self._found |= {desc: job for desc, job in jobs.items() if not job.must_compile}
        jobs |= {desc: self._found[desc].of(nodes) for desc, nodes in needed.items() if desc in self._found}
        return tuple(jobs[desc] for desc in needed)

    def lacking(self, needed: Iterable[OpDesc]) -> list[OpDesc]:
        """Return the operators that must be compiled.

        Raises:
            BuildError: If the compiler is not installed and nobody knows it.
        """
        new = {desc: () for desc in needed if desc not in self._found}
        released = None if self._compiles_all or self.devices else self._released(new)
        if released is None:
            return [job.desc for job in self.plan(new) if job.must_compile]
        self._found |= released
        return [desc for desc in new if desc not in released]

    @property
    def _compiles_all(self) -> bool:
        return self.force or self.debug.active or not self.config.uses_cache

    def _plan(self, needed: Mapping[OpDesc, tuple[str, ...]]) -> tuple[OperatorJob, ...]:
        """Return the same for operators of its own target."""
        jobs = (None if self._compiles_all else self._released(needed)) or {}
        jobs |= {job.desc: job for job in self._looked_up({d: nodes for d, nodes in needed.items() if d not in jobs})}
        found = tuple(jobs[desc] for desc in needed)
        self._serve_fallback(found)
        return found

    def _released(self, needed: Mapping[OpDesc, tuple[str, ...]]) -> dict[OpDesc, OperatorJob] | None:
        """Return the operators that the release brings; None if one's own store, which goes first, has anything.

        Their keys name the compiler that made them: 165 MB of the installed one need not be read to know it.
        """
        compiler = None if self.release is None else self.release.compiler()
        if self.release is None or compiler is None or self.store.listed.names(LOOKED_AT):
            return None
        jobs = {}
        for desc, nodes in needed.items():
            key = make_key(desc, self.target, compiler, self.compiler.sources_digest(desc))
            found = self.release.lookup(key)
            if not isinstance(found, Missing):
                jobs[desc] = OperatorJob(desc, key, key.name(self.config.device_id), nodes, self.store, found)
        return jobs

    def _looked_up(self, needed: Mapping[OpDesc, tuple[str, ...]]) -> tuple[OperatorJob, ...]:
        asked = [self._asked(desc, nodes) for desc, nodes in needed.items()]
        found = iter(look_up(self.store, [key for key, options in asked if options is None]))
        return tuple(
            self._decide(desc, nodes, self.store, key, options, None if options is not None else next(found))
            for (desc, nodes), (key, options) in zip(needed.items(), asked, strict=True)
        )

    def found(self, needed: Mapping[OpDesc, tuple[str, ...]]) -> tuple[OperatorJob, ...] | None:
        """Return a network's operators if nothing must be compiled for it, else None.

        Raises:
            BuildError: If the compiler is not installed.
        """
        jobs = self.plan(needed)
        return None if any(job.must_compile for job in jobs) or self._missing_runtime(jobs) else jobs

    def start(
        self,
        needed: Mapping[OpDesc, tuple[str, ...]],
        network: str,
        more: Mapping[OpDesc, tuple[str, ...]] = NOTHING,
    ) -> UnderWay:
        """Decide now, compile in the background.

        Args:
            needed: Each distinct operator with the nodes that need it (``Program.descriptors()``).
            network: The network's name, for events.
            more: Operators that it can do without: one that cannot be compiled is told of and left out.

        Raises:
            BuildError: If the compiler is not installed or its server cannot be started.
            CompileForbiddenError: If an operator must be compiled while that is forbidden; names each with the reason.
        """
        started = perf_counter()
        jobs = self.plan({**needed, **more, **needed})
        self._found.clear()  # the next build finds what is there then
        for job in jobs:
            job.is_needed = job.desc in needed
        self._report_unmatched(needed, network)
        self.observer(BuildStarted(network, len(jobs), sum(job.must_compile for job in jobs)))
        if not any(job.must_compile for job in jobs):
            self.close()  # a server warmed up in vain
        if not self.devices:
            return self._begin(network, jobs, self.store, self._missing_runtime(jobs), self.observer, started)
        return self._begin_apart(network, jobs, started)

    def _begin_apart(self, network: str, jobs: Sequence[OperatorJob], started: float) -> UnderWay:
        """Begin to compile the operators of several devices."""
        works, observer = [], without_end(self.observer)
        for name, each in {self.target.device: self, **self.devices}.items():
            own = tuple(job for job in jobs if job.desc.device == name)
            works.append(each._begin(network, own, each.store, each._missing_runtime(own), observer, started))
        return SeveralWorks(works, [job.desc for job in jobs], network, self.observer)

    def adopt(self, jobs: Iterable[OperatorJob]) -> None:
        """Take, for operators that must be compiled, objects of other sources that define the same.

        Nothing is compiled for that. What is taken is stored under the new sources.

        Raises:
            BuildError: If the compiler's server cannot be started, or cannot load it.
        """
        lacking = [] if self.force else [job for job in jobs if job.may_be_known]
        remember_origins(lacking)
        for name, each in {self.target.device: self, **self.devices}.items():
            each._define([job for job in lacking if job.origins and job.desc.device == name])

    def defined(self, descs: Iterable[OpDesc]) -> dict[OpDesc, tuple[str, str]]:
        """Return the names of operators, without device and sources, and the digests of their pipelines.

        Nothing is compiled for that; what others were compiled from is taken as by ``adopt``, the rest is remembered.
        What cannot be known is left out.

        Raises:
            BuildError: If the compiler is not installed and nobody knows it, or its server cannot be started.
        """
        jobs = self._looked_up(dict.fromkeys(descs, ()))
        lacking = [job for job in jobs if job.may_be_known]
        remember_origins(lacking)
        self._define([job for job in lacking if job.origins or not job.pipeline])
        for job in jobs:
            if job.entry is not None and job not in lacking:
                job.pipeline = job.entry.pipeline
        return {job.desc: (job.key.operator_stem, job.pipeline) for job in jobs if job.pipeline}

    def _define(self, jobs: Sequence[OperatorJob]) -> None:
        """Find out the pipelines of operators, and take the objects that were compiled from these."""
        if not jobs or self.compiler.library() is None:
            return
        work = Work(self, "", tuple(jobs), jobs[0].store, ignore, perf_counter(), compiles=False)
        work.start()
        work.wait()
        for job in jobs:
            job.failure = None
        self._adopted |= {job.key.sha256 for job in jobs if not job.must_compile}

    def build(self, needed: Mapping[OpDesc, tuple[str, ...]], network: str) -> BuildResult:
        """Build and wait; see ``start`` and ``Work.result``."""
        return self.start(needed, network).result()

    def needs_runtime(self, entries: Iterable[Entry]) -> bool:
        """Return whether some object calls functions that only the compiler's runtime library has."""
        return self.runtime_store is not None and any(
            needs_runtime(entry.undefined, self.provided) for entry in entries
        )

    def build_runtime(self) -> BuildResult:
        """Build the compiler's runtime library and wait; it is not counted among a network's operators.

        Raises:
            CompileError: If it could not be compiled.
            BuildError: If the compiler is not installed or could not be loaded.
            CompileForbiddenError: If it is not stored and compiling is forbidden.
        """
        if self.runtime_store is None:
            raise BuildError("objects call a runtime library, and there is no store for one")
        started, store = perf_counter(), self.runtime_store

        def observer(event: Event) -> None:
            if isinstance(event, (CompileStarted, Waiting, Warned)):
                self.observer(event)

        jobs = (self._decide_runtime(store),)
        return self._begin("", jobs, store, (), observer, started).result()

    def finish(self, jobs: Collection[OperatorJob]) -> BuildResult | None:
        """Take note of the compiled operators; return the compiler's runtime library if objects call it."""
        self.rebuilt.update(job.key.sha256 for job in jobs if job.must_compile)
        entries = (job.entry for job in jobs if job.entry is not None)
        return self.build_runtime() if self.needs_runtime(entries) else None

    @property
    def max_in_flight(self) -> int:
        """The largest number of operators in flight: a little more than a compile server has workers for."""
        if self.executor is None:
            return self.config.workers + 1
        from opbuild.builder.spread import max_in_flight

        return max_in_flight(self.executor)

    def take_server(self) -> Server:
        """Return the warm server, or a new one; it belongs to the caller until ``give_server``."""
        if self.executor is not None:
            from opbuild.builder.spread import SpreadServer

            return SpreadServer(self.executor, self.compiler.import_string, self.identity().digest, self._new_server)
        with self._lock:
            server, self._server = self._server, None
        if server is not None and server.alive:
            return server
        return self._new_server()

    def give_server(self, server: Server) -> None:
        """Take back a server that has nothing left to do, for the next build."""
        with self._lock:
            if self._server is None and isinstance(server, CompileServer):
                self._server = server
                return
        server.close()

    def _new_server(self) -> CompileServer:
        if self.is_urgent:
            return IDLE_SERVER.start(self.compiler.import_string, self.config.workers, self._files)
        server = CompileServer(self.compiler.import_string, 1, is_urgent=False)
        server.compiler = self._files
        return server

    def _identify_in_background(self) -> Background[CompilerIdentity]:
        with self._lock:
            if self._identity is not None:
                return self._identity
            identity = self._identity = Background(self._identify, "opbuild-identify")
            with contextlib.suppress(OSError):  # reported when they are read
                self._files = files_state(self.compiler.files())
        identity.start()
        return identity

    def _identify(self) -> CompilerIdentity:
        others = (lambda: None) if self.release is None else self.release.compiler
        memo = memo_of(self.target.device, self.config.compiler_memo)
        return identify(self.compiler, memo, make_trust(self.config), others)

    def _asked(self, desc: OpDesc, nodes: tuple[str, ...]) -> tuple[Key, tuple[str, ...] | None]:
        """Return an operator's key, and the options that it is debugged with; None if it is not."""
        options = self.debug.options(desc.op_types, nodes) if desc.operands else None
        return self.key(desc, options or ()), options

    def _decide(
        self,
        desc: OpDesc,
        nodes: tuple[str, ...],
        store: Store,
        key: Key,
        options: tuple[str, ...] | None,
        found: Found | Missing | None,
    ) -> OperatorJob:
        decision = self._decision(key, found, options)
        job = OperatorJob(desc, key, key.name(self.config.device_id), nodes, store, decision, options)
        if job.entry is not None and key.sha256 in self._adopted:
            job.adopt(job.entry)  # a build that asked before says why it is there
        return job

    def _decide_runtime(self, store: Store) -> OperatorJob:
        """Decide about the compiler's runtime library."""
        key, options = self._asked(runtime_desc(), ())
        job = self._decide(runtime_desc(), (), store, key, options, store.lookup(key))
        self._serve_fallback((job,))
        return job

    def _serve_fallback(self, jobs: Sequence[OperatorJob]) -> None:
        """Take operators of other sources, or else of a lower level, where nothing can be compiled."""
        if self.force:
            return
        if self.config.forbid_compile:
            self.adopt(jobs)
        if any(job.may_be_known for job in jobs):
            for lower in self.lower():
                self._borrow([job for job in jobs if job.may_be_known], lower)

    def _borrow(self, jobs: Sequence[OperatorJob], lower: LowerLevel) -> None:
        """Give operators that cannot be compiled a lower level's entries, where it has them."""
        others = [self._at_level(job, lower) for job in jobs]
        self.adopt(others)
        for job, other in zip(jobs, others, strict=True):
            if not other.must_compile:
                job.borrow(other, lower.text)

    def _at_level(self, job: OperatorJob, lower: LowerLevel) -> OperatorJob:
        """Return an operator as a lower level has it."""
        store = lower.operators if job.desc.operands else lower.runtimes
        key = make_key(job.desc, lower.level, self.identity(), job.key.components["sources"])
        return self._decide(job.desc, job.nodes, store, key, None, store.lookup(key))

    def _decision(self, key: Key, found: Found | Missing | None, debug: Sequence[str] | None) -> Found | Reason:
        """Return the entry that serves, or why the operator must be compiled."""
        if debug is not None or found is None:
            return Reason("debugged", f"it is debugged: {', '.join(debug or ()) or 'listed in op_debug_list'}")
        if isinstance(found, Missing):
            return found.reason
        return FORCED if self.force and key.sha256 not in self.rebuilt else found

    def _report_unmatched(self, needed: Mapping[OpDesc, tuple[str, ...]], network: str) -> None:
        """Warn of names in the list of operators to debug that a network lacks; one of a single operator lacks most."""
        types = (op_type for desc in needed for op_type in desc.op_types)
        lacking = self.debug.unmatched(types, (node for nodes in needed.values() for node in nodes))
        if lacking and len(needed) > 1:
            self.observer(Warned(f"op_debug_list names {', '.join(lacking)}, which no operator of {network} has"))

    def _missing_runtime(self, jobs: Sequence[OperatorJob]) -> list[OperatorJob]:
        """Return the job of the runtime library if it is sure already that it must be compiled."""
        if self.runtime_store is None or not self.needs_runtime(job.entry for job in jobs if job.entry is not None):
            return []
        job = self._decide_runtime(self.runtime_store)
        return [job] if job.must_compile else []

    def _begin(
        self,
        network: str,
        jobs: tuple[OperatorJob, ...],
        store: Store,
        also_needed: Sequence[OperatorJob],
        observer: Observer,
        started: float,
    ) -> Work:
        """Begin to compile those jobs that must be, in one store, unless they or others are forbidden."""
        work = Work(self, network, jobs, store, observer, started)
        self._check_allowed([*work.jobs, *(job for job in also_needed if job.must_compile)])
        work.start()
        return work

    def _check_allowed(self, jobs: Sequence[OperatorJob]) -> None:
        """Refuse to compile where that is forbidden or there is no compiler."""
        if not jobs or not (self.config.forbid_compile or self.compiler.library() is None):
            return
        explainer = Explainer(self.store, self.others)
        for job in jobs:
            job.reason = explainer.explain(job.key, job.reason)
        if self.config.forbid_compile:
            raise forbidden_error(jobs, self.config)
        raise absent_error(self.compiler.name, jobs, self.config)
