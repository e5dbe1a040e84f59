"""Job: one operator of a build, from its decision to its outcome; the results of builds, and their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Literal

from opbuild.config import CACHE_MODES, Config
from opbuild.errors import BuildError, CompileError, CompileForbiddenError
from opbuild.events import BuildFinished, Reused
from opbuild.kernel.entry import UNCHANGED, Entry
from opbuild.kernel.interfaces import Claim, Found, Store
from opbuild.kernel.key import Key
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.reason import NOWHERE, Reason
from opbuild.platform.limits import suspected
from opbuild.platform.packages import install_command
from opbuild.platform.records import dataclass, field
from opbuild.text.plural import counted, first_of, listed

FORCED = Reason("forced", "a rebuild was asked for")
_REUSED = Reason("stored", "in the store")


@dataclass(frozen=True)
class CompileFailure:
    """The failure of an operator's compile: the step that failed, and its message."""

    step: str
    text: str


@dataclass(eq=False)
class OperatorJob:
    """One operator of a build.

    Attributes:
        desc: The operator.
        key: Its key.
        name: Its entry's name.
        nodes: The nodes that need it.
        store: Where it is published.
        decision: The stored entry that serves, or why it must be compiled, as it was when the build began.
        debug: The options that it is debugged with, and then not published; None if it is not.
        reason: Why it was compiled, or where it came from.
        source: Whose entry serves, if it is not one's own.
        origins: What it was compiled from before, by the pipelines that this defined.
        pipeline: The digest of what its sources define, where nothing is compiled from them; empty: it is not known.
        outcome: What became of it: ``built``, ``reused`` from the store, or ``shared``: others built it.
        entry: What serves, once there is something.
        failure: How it failed, if it did.
        claim: The right to compile it, while this process has it.
        is_borrowed: Whether a lower level's entry serves.
        is_needed: Whether the build fails if it does.
    """

    desc: OpDesc
    key: Key
    name: str
    nodes: tuple[str, ...]
    store: Store
    decision: Found | Reason
    debug: tuple[str, ...] | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    pipeline: str = ""
    reason: Reason = field(init=False)
    source: str = field(default="", init=False)
    outcome: Literal["built", "reused", "shared"] = field(init=False)
    entry: Entry | None = None
    failure: CompileFailure | None = None
    claim: Claim | None = None
    is_borrowed: bool = False
    is_needed: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.decision, Reason):
            self.reason, self.outcome = self.decision, "built"
        elif self.decision.is_lent:
            self.take(self.decision)
        elif self.decision.source:
            self.source = self.decision.source
            self._serve(self.decision.entry, "reused", Reason("stored", f"from {self.source}"))
        else:
            self._serve(self.decision.entry, "reused", _REUSED)

    def of(self, nodes: tuple[str, ...]) -> OperatorJob:
        """Return the same for other nodes."""
        same = copy(self)
        same.nodes = nodes
        return same

    @property
    def must_compile(self) -> bool:
        """Whether nothing served when the build began."""
        return isinstance(self.decision, Reason)

    @property
    def is_prebuilt(self) -> bool:
        """Whether the release brings it, whatever compiler is installed."""
        return isinstance(self.decision, Found) and self.decision.stays

    @property
    def milliseconds(self) -> float:
        """The time of compiling; 0 if it was not built here."""
        return self.entry.milliseconds if self.entry is not None and self.outcome == "built" else 0.0

    @property
    def open(self) -> bool:
        """Whether it is neither there nor failed."""
        return self.entry is None and self.failure is None

    def take(self, found: Found, holder: object = "") -> None:
        """Take an entry that another process built; ``holder`` says which, if no store does."""
        self.source = found.source or str(holder)
        text = f"taken from {found.source}" if found.source else f"built by {holder} meanwhile"
        self._serve(found.entry, "shared", Reason("shared", text))

    def adopt(self, entry: Entry) -> None:
        """Take an object that was compiled from other sources that define the same."""
        self.decision = Found(entry)
        self._serve(entry, "reused", Reason("unchanged", UNCHANGED))

    def borrow(self, other: OperatorJob, level: str) -> None:
        """Take the entry that the operator has for a lower level; ``level`` says which, and why."""
        self.decision, self.is_borrowed, self.source = other.decision, True, other.source
        if other.entry is not None:
            self._serve(other.entry, "reused", other.reason._replace(text=f"{other.reason}, for level {level}"))

    @property
    def may_be_known(self) -> bool:
        """Whether an object of other sources would serve."""
        return self.must_compile and self.debug is None

    def release(self) -> None:
        """Let others compile it who still need to."""
        claim, self.claim = self.claim, None
        if claim is not None:
            claim.release()

    def _serve(self, entry: Entry, outcome: Literal["reused", "shared"], reason: Reason) -> None:
        self.entry, self.name, self.outcome, self.reason = entry, entry.name, outcome, reason


def remember_origins(jobs: Sequence[OperatorJob]) -> None:
    """Ask the store for the origins of operators that must be compiled."""
    asked = [job for job in jobs if job.may_be_known and not job.origins]
    for job, known in zip(asked, asked[0].store.origins([job.key for job in asked]) if asked else (), strict=True):
        job.pipeline = next((pipeline for pipeline, origin in known.items() if origin == job.key.origin), job.pipeline)
        job.origins = {pipeline: origin for pipeline, origin in known.items() if origin != job.key.origin}


_SHOWN_NODES = 3


@dataclass(frozen=True)
class BuildResult:
    """A finished build.

    Attributes:
        entries: The entry of every operator that was needed, in the order given.
        runtime: What the build of the compiler's runtime library delivered, if some object calls it, else None.
        decisions: What became of each operator and why, in the order given; the runtime library is not among them.
        seconds: Wall time from the start of the build to its end.
        warnings: What the user should know, e.g. that nothing could be stored.
        certain: Whether every object is what its key says, and for the level that was asked for. If a source or the
            compiler changed while it was built, an object may be used, but neither it nor what is made of it may be
            kept; of a lower level's objects no network may be kept that is taken for one of this level.
        compiler: Digest of the compiler that made the objects; empty: the release brings all of them.
    """

    entries: Mapping[OpDesc, Entry]
    runtime: BuildResult | None
    decisions: tuple[OperatorJob, ...]
    seconds: float
    warnings: tuple[str, ...]
    certain: bool = True
    compiler: str = ""

    @property
    def checked_order(self) -> tuple[str, ...]:
        """Symbols of the kernels that were built with the debug option ``check_flag``."""
        return tuple(entry.symbol for entry in self.entries.values() if "check_flag" in entry.debug)

    @property
    def built(self) -> int:
        """The number of operators that were compiled."""
        return sum(decision.outcome == "built" for decision in self.decisions)

    @property
    def shared(self) -> int:
        """The number of operators that came from other processes or ranks; they count as reused."""
        return sum(decision.outcome == "shared" for decision in self.decisions)

    @property
    def reused(self) -> int:
        """The number of operators that came from the store or from others."""
        return len(self.decisions) - self.built

    def told(self, network: str) -> BuildFinished:
        """Return the event of its end, as the build of a network."""
        origins = tuple(
            Reused(job.name, job.reason.text, job.source, len(self.entries[job.desc].artifact.data))
            for job in self.decisions
            if job.outcome != "built"
        )
        return BuildFinished(network, self.built, self.reused, self.seconds, origins)


def compile_error(jobs: Sequence[OperatorJob]) -> CompileError:
    """Return the error for operators of which some could not be compiled."""
    failed = [(job, job.failure) for job in jobs if job.failure is not None]
    others = len(jobs) - len(failed)
    lines = [f"{_named_with_nodes(job)}: step {failure.step}: {failure.text}" for job, failure in failed]
    count = counted(len(failed), "operator")
    kept = f"; {others} other{'s are' if others != 1 else ' is'} built" if others else ""
    hints = (suspected(), "what was built is kept: the next run compiles only these")
    return CompileError(f"{count} could not be compiled{kept}:\n" + listed(lines), "; ".join(filter(None, hints)))


def forbidden_error(jobs: Sequence[OperatorJob], config: Config) -> CompileForbiddenError:
    """Return the error for operators that had to be compiled while compiling is forbidden."""
    return CompileForbiddenError(
        f"compiling is forbidden, and {_forbidden_text(jobs)}",
        _hint(jobs, config, "build the network once without OPBUILD_FORBID_COMPILE, with the same cache path, level "
              "and compiler"),
    )  # fmt: skip


def absent_error(compiler: str, jobs: Sequence[OperatorJob], config: Config) -> BuildError:
    """Return the error for operators that had to be compiled where no compiler is installed."""
    bundle = "import a bundle that was exported with this model, for this level or a lower one"
    return BuildError(
        f"the compiler {compiler} is not installed, and {_forbidden_text(jobs)}",
        _hint(jobs, config, f"{install_command(compiler)}, or {bundle}"),
    )


_UNUSED = ("untrusted", "unsigned", "wrong-signature", "unreadable", "damaged", "incomplete", "other-key", "stale")
"""Codes of reasons why something that is there is not used."""


def _hint(jobs: Sequence[OperatorJob], config: Config, remedy: str) -> str:
    """Return the hint: about the cause that keeps stored operators from being used, and where there are none."""
    cause = _cause({job.reason.code: job.reason for job in jobs}, config)
    return f"{cause}; where it was never built, {remedy}" if cause else remedy


def _cause(reasons: Mapping[str, Reason], config: Config) -> str:
    """Return the obstacle to using stored operators, and its remedy, by codes of reasons; empty if none is known."""
    unused = next((reasons[code] for code in _UNUSED if code in reasons), None)
    elsewhere = (each.elsewhere for each in reasons.values())
    far = next((text for text in elsewhere if text and not text.startswith(NOWHERE)), "")
    is_disabled = config.op_compiler_cache_mode == "disable"
    if "debugged" in reasons or config.op_debug_level or (is_disabled and config.op_debug_config is not None):
        return "operators are debugged, which are always compiled: leave op_debug_level and op_debug_config out"
    if config.op_compiler_cache_mode != CACHE_MODES[0]:
        mode = config.op_compiler_cache_mode
        return f"op_compiler_cache_mode is {mode!r}, with which nothing that is stored is used: leave it out"
    if config.folder_problem:
        return f"the cache is not used: {config.folder_problem}"
    if unused is not None:
        return f"what is stored is not used: {unused.text}"
    if far:
        return f"{far}: 'opbuild cache check' says what it can do"
    return "" if config.uses_pack else "the pack is not used: leave OPBUILD_PACK=0 out"


def _forbidden_text(jobs: Sequence[OperatorJob]) -> str:
    lines = [f"{_named_with_nodes(job)}: {job.reason} [{job.reason.code}]" for job in jobs]
    count = counted(len(jobs), "operator")
    return f"{count} would have to be compiled:\n" + listed(lines)


def _named_with_nodes(job: OperatorJob) -> str:
    return f"{job.name} (of {first_of(job.nodes, _SHOWN_NODES)})" if job.nodes else job.name
