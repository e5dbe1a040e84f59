"""Job: one operator to compile, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opbuild.builder.result import Failure
from opbuild.kernel.entry import Entry
from opbuild.kernel.interfaces import Claim, Store
from opbuild.kernel.key import Key
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.reason import Reason


@dataclass(eq=False)
class Job:
    """One operator to compile.

    Attributes:
        desc: The operator.
        key: Its key.
        nodes: The nodes that need it.
        shapes: The operands' shapes that first asked, for ``.info``.
        store: Where it is published.
        reason: Why it must be compiled; where it came from instead, if it was taken.
        debug: The options that it is debugged with, and then not published; None if it is not.
        entry: What came out, once it did.
        failure: How it failed, if it did.
        taken: Whether the entry came from others.
        claim: The right to compile it, while this process has it.
    """

    desc: OpDesc
    key: Key
    nodes: tuple[str, ...]
    shapes: Sequence[Sequence[int]] | None
    store: Store
    reason: Reason
    debug: tuple[str, ...] | None = None
    entry: Entry | None = None
    failure: Failure | None = None
    taken: bool = False
    claim: Claim | None = None

    @property
    def open(self) -> bool:
        """Whether it is neither compiled nor failed."""
        return self.entry is None and self.failure is None

    def release(self) -> None:
        """Let others compile it who still need to."""
        claim, self.claim = self.claim, None
        if claim is not None:
            claim.release()
