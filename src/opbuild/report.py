"""Report: the result of a build of a network, for people and for programs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from opbuild.platform.records import NamedTuple, dataclass, field
from opbuild.text.plural import counted, first_of, size

UNBOUND = "nothing is built before the first call, which brings the shapes of its inputs"
"""What the report of a network says before any signature was bound."""


SHOWN_NODES = 4
"""Nodes of an operator that a notebook names."""


@dataclass
class Clock:
    """Milliseconds of each step of the data path, in the order in which they began."""

    steps: dict[str, float] = field(default_factory=dict)
    _inside: float = field(default=0.0, init=False)  # what steps within the one under way took

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        """Take the time of one step, less that of steps within it."""
        self.steps.setdefault(step, 0.0)
        before, self._inside = self._inside, 0.0
        started = time.perf_counter()
        try:
            yield
        finally:
            took = 1e3 * (time.perf_counter() - started)
            self.steps[step] += took - self._inside
            self._inside = before + took


class OperatorReport(NamedTuple):
    """The report of one distinct operator.

    Attributes:
        name: The entry's name, as in ``kernel_meta``.
        status: ``built``; ``reused`` from the store or from the stored network; or ``shared``, which another process or
            rank built.
        reason: Why it was built or could be reused.
        nodes: Names of the model's nodes that it computes.
        milliseconds: How long it took to compile, whenever that was.
        symbol: Its kernel's symbol, by which calls name it; empty where that is not known.
    """

    name: str
    status: Literal["built", "reused", "shared"]
    reason: str
    nodes: tuple[str, ...]
    milliseconds: float = 0.0
    symbol: str = ""


@dataclass(frozen=True, repr=False)
class Report:
    """The report of a build for one network and one input signature.

    Attributes:
        network: The network's name.
        level: The level of its code; if that is lower than was asked for, or than this machine's, which and why.
        operators: Its distinct operators in order of first use.
        host: Number of calls that the host backend evaluates, by operator type.
        steps: Milliseconds of each step of the data path, in order.
        image: Whether the network was started from its stored image.
        image_reason: Why it was not, or empty.
        notes: Remarks of lowering, by node.
        tuned: Where variants are from that are not their family's own choice, by node: ``tuned on <machine class>
            <date>``, or ``bucket: ...`` where other sizes were measured.
        arena: Bytes of memory for intermediate values.
        constants: Bytes of packed constants.
        breaks: Of a network in segments the nodes of the graph breaks met so far: its other numbers are sums over the
            segments that calls have asked for. Of a build that is only planned those behind which it is bound when it
            is called.
        stayed: Of a network for a device the kernels that the CPU runs: each family with why, and how many calls.
        pending: Operators that are compiled behind the calls, which others compute until then.
    """

    network: str
    operators: tuple[OperatorReport, ...] = ()
    host: Mapping[str, int] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)
    image: bool = False
    image_reason: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)
    tuned: Mapping[str, str] = field(default_factory=dict)
    arena: int = 0
    constants: int = 0
    level: str = ""
    breaks: tuple[str, ...] = ()
    pending: int = 0
    stayed: Mapping[str, int] = field(default_factory=dict)

    @property
    def cuts(self) -> tuple[str, ...]:
        """The same as ``breaks``, by the name that it had."""
        return self.breaks

    @property
    def built(self) -> int:
        """Number of distinct operators that were compiled."""
        return sum(operator.status == "built" for operator in self.operators)

    @property
    def shared(self) -> int:
        """Number of distinct operators that other processes or ranks built; they count as reused."""
        return sum(operator.status == "shared" for operator in self.operators)

    @property
    def reused(self) -> int:
        """Number of distinct operators that this build did not compile."""
        return len(self.operators) - self.built

    def why(self, operator: OperatorReport) -> str:
        """Return the reason that an operator was built or reused, and the source of its variant if tuning found it."""
        said = next((self.tuned[node] for node in operator.nodes if node in self.tuned), "")
        return f"{operator.reason}; {said}" if said else operator.reason

    @property
    def variants(self) -> str:
        """The sources of the variants; empty if all are from the families' tables."""
        if not self.tuned:
            return ""
        found = Counter(said.split(" ", 1)[1] for said in self.tuned.values())
        counts = [f"{counted(count, 'node')} {said}" for said, count in found.most_common()]
        return f"variants: {'; '.join(counts)}; all others table"

    @property
    def on_cpu(self) -> list[str]:
        """The sentences that tell which kernels of a network for a device the CPU runs, and why."""
        return [f"{counted(count, 'call')} on the CPU: {said}" for said, count in sorted(self.stayed.items())]

    @property
    def milliseconds(self) -> float:
        """Duration of all steps."""
        return sum(self.steps.values())

    def __repr__(self) -> str:
        counts = {"built": self.built, "reused": self.reused, "host": sum(self.host.values())}
        shown = ", ".join(f"{name}={count}" for name, count in counts.items())
        return f"Report(network={self.network!r}, {shown}, image={self.image}, milliseconds={self.milliseconds:.1f})"

    def _repr_html_(self) -> str:
        from opbuild.text.visible import folded, table, titled

        if not self.steps:
            return titled(f"Build of {self.network}: {UNBOUND}")
        rows = [
            ("level", self.level),
            ("operators built", self.built),
            ("operators reused", self.reused),
            (
                "calls that fall back to numpy",
                ", ".join(f"{count} x {name}" for name, count in sorted(self.host.items())) or "none",
            ),
            *([("on the CPU beside the device", "; ".join(self.on_cpu))] if self.stayed else []),
            ("started from the stored network", "yes" if self.image else f"no: {self.image_reason}"),
            *([("operators to be compiled behind the calls", self.pending)] if self.pending else []),
            *([("in parts, cut at", first_of(self.breaks, SHOWN_NODES))] if self.breaks else []),
            ("time", f"{self.milliseconds:.0f} ms"),
            ("memory", f"{size(self.arena)} intermediate, {size(self.constants)} constant"),
        ]
        details = table(
            ("operator", "nodes", "", "why", "compiled in"),
            [
                (
                    each.name,
                    first_of(each.nodes, SHOWN_NODES),
                    each.status,
                    self.why(each),
                    f"{each.milliseconds:.0f} ms",
                )
                for each in self.operators
            ],
        )
        return titled(f"Build of {self.network}", table((), rows), folded("each operator", details))

    def __str__(self) -> str:
        if not self.steps:
            return f"network {self.network}: {UNBOUND}"
        width = max((len(operator.name) for operator in self.operators), default=8)
        lines = [
            f"network {self.network}: {counted(self.built, 'operator')} built, {self.reused} reused, "
            f"{self.milliseconds:.0f} ms"
        ]
        lines += [
            f"  {operator.status:<6}  {operator.name:<{width}}  {len(operator.nodes):>3} x  {self.why(operator)}"
            for operator in self.operators
        ]
        lines.append(f"level {self.level}")
        lines += [self.variants] * bool(self.variants)
        lines += self.on_cpu
        if self.host:
            lines.append(
                "falls back to numpy: " + ", ".join(f"{count} x {name}" for name, count in sorted(self.host.items()))
            )
        if self.pending:
            lines.append(f"{counted(self.pending, 'operator')} to be compiled behind the calls, which others compute")
        if self.breaks:
            lines.append(f"in parts, cut at {first_of(self.breaks, SHOWN_NODES)}")
        lines.append("steps: " + ", ".join(f"{name} {time:.1f} ms" for name, time in self.steps.items()))
        lines.append(
            "started from the stored network"
            if self.image
            else f"not started from a stored network: {self.image_reason}"
        )
        lines.append(f"memory: {size(self.arena)} intermediate, {size(self.constants)} constant")
        return "\n".join(lines)
