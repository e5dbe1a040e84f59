"""Job: one operator of a build, from its decision to its outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from opbuild.kernel.entry import UNCHANGED, Entry
from opbuild.kernel.interfaces import Claim, Found, Store, origins
from opbuild.kernel.key import Key
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.reason import Reason
from opbuild.platform.records import dataclass, field

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
            self._serve(self.decision.entry, "reused", Reason("stored", f"from {self.decision.source}"))
        else:
            self._serve(self.decision.entry, "reused", _REUSED)

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
        text = f"taken from {found.source}" if found.source else f"built by {holder} meanwhile"
        self._serve(found.entry, "shared", Reason("shared", text))

    def adopt(self, entry: Entry) -> None:
        """Take an object that was compiled from other sources that define the same."""
        self.decision = Found(entry)
        self._serve(entry, "reused", Reason("unchanged", UNCHANGED))

    def borrow(self, other: OperatorJob, level: str) -> None:
        """Take the entry that the operator has for a lower level; ``level`` says which, and why."""
        self.decision, self.is_borrowed = other.decision, True
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
    for job, known in zip(asked, origins(asked[0].store, [job.key for job in asked]) if asked else (), strict=True):
        job.pipeline = next((pipeline for pipeline, origin in known.items() if origin == job.key.origin), job.pipeline)
        job.origins = {pipeline: origin for pipeline, origin in known.items() if origin != job.key.origin}
