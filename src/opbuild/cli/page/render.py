"""The page: its contents as plain types, and one HTML file of them, which needs no network and no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from opbuild.cli.page.recording import STEPS, Span
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple, dataclass
from opbuild.program import DEVICE_COPY
from opbuild.report import OperatorReport, Report
from opbuild.runtime.calls import NetworkCall
from opbuild.runtime.executor import Executor
from opbuild.runtime.profile import Profile
from opbuild.text.plural import counted, first_of, size
from opbuild.text.visible import visible

if TYPE_CHECKING:
    from jinja2 import Template


class Layer(NamedTuple):
    """One call of the network.

    Attributes:
        number: Its place, from 1.
        status: What became of its operator: ``built``, ``reused``, ``shared``, or ``host``; ``check`` if it only
            refuses indices.
        build: Milliseconds that its compile took, whenever that was; None on the host.
        run: Milliseconds that the call takes; None if it was not timed.
        share: That over the sum of all calls.
        gflops: Its rate; 0 where operations are not counted or times not taken.
        peak: That over the nominal peak; None without one.
        memory: Bytes of temporaries that are alive; None where that is not known.
    """

    number: int
    call: NetworkCall
    status: str
    reason: str
    build: float | None
    run: float | None
    share: float
    gflops: float
    peak: float | None
    memory: int | None


class OperatorRow(NamedTuple):
    """One distinct operator.

    Attributes:
        family: The kernel's family; empty if it is not known.
        variant: How it computes, as text.
        build: Milliseconds that its compile took, whenever that was.
        calls: How many calls it serves.
        networks: Other networks in the store that use it.
        run: Milliseconds of its calls; None if they were not timed.
        gflops: Their rate; 0 where it is not known.
    """

    name: str
    family: str
    variant: str
    status: str
    reason: str
    build: float
    calls: int
    networks: tuple[str, ...]
    run: float | None
    share: float
    gflops: float
    peak: float | None


class InputSize(NamedTuple):
    """An input of the network, with the size that was called.

    Attributes:
        name: Its name.
        dtype: Its element type.
        declared: Its extents as declared, those that are open by the names that layers' shapes have; None: any number.
        called: Its extents in the calls that the page shows.
    """

    name: str
    dtype: str
    declared: Sequence[int | str] | None
    called: Sequence[int]


@dataclass(frozen=True)
class PageContents:
    """Everything that the page shows.

    Attributes:
        inputs: The network's inputs.
        layers: The network's calls in order.
        kernels: Its distinct operators, the slowest first if times were taken, else those that were built.
        profile: The times of a run; None if they were not taken.
        peak: GFLOP/s that the machine has nominally; None if that is not known.
    """

    report: Report
    inputs: tuple[InputSize, ...]
    layers: tuple[Layer, ...]
    kernels: tuple[OperatorRow, ...]
    spans: tuple[Span, ...]
    profile: Profile | None
    peak: float | None
    threads: int
    version: str

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes of the timeline, steps first."""
        lanes = {span.lane for span in self.spans}
        return tuple(sorted(lanes, key=lambda lane: (lane != STEPS, len(lane), lane)))


def gather(
    report: Report,
    runners: Sequence[Executor],
    *,
    inputs: Sequence[InputSize] = (),
    spans: Sequence[Span] = (),
    profile: Profile | None = None,
    networks: Mapping[str, Sequence[str]] | None = None,
    peak: float | None = None,
    threads: int = 1,
    version: str = "",
) -> PageContents:
    """Put together the contents of the page; ``networks`` are by operator the names of other networks that use it."""
    calls = [(runner.call_of(step), memory) for runner in runners for step, memory in enumerate(memory_of(runner))]
    rows: list[tuple[NetworkCall, float | None, float, float, int | None]]
    if profile is None:
        rows = [(call, None, 0.0, 0.0, memory) for call, memory in calls]
    else:
        known = {(call.symbol, call.nodes): memory for call, memory in calls}
        rows = [
            (row.call, row.milliseconds, row.share, row.gflops, known.get((row.call.symbol, row.call.nodes)))
            for row in profile.rows
        ]
    layers, of_operators = [], dict[OperatorReport, list[Layer]]((each, []) for each in report.operators)
    find = _Operators(report.operators)
    for number, (call, run, share, gflops, memory) in enumerate(rows, 1):
        operator = find.of(call)
        status, reason, build = _outcome(call, operator)
        of_peak = gflops / peak if peak and gflops else None
        layers.append(Layer(number, call, status, reason, build, run, share, gflops, of_peak, memory))
        if operator is not None:
            of_operators[operator].append(layers[-1])
    kernels = [_kernel(each, own, networks or {}, peak) for each, own in of_operators.items()]
    kernels.sort(key=lambda kernel: (-(kernel.run or 0), kernel.status != "built", -kernel.build, kernel.name))
    return PageContents(
        report, tuple(inputs), tuple(layers), tuple(kernels), tuple(spans), profile, peak, threads, version
    )


def memory_of(runner: Executor) -> list[int]:
    """Return the bytes of temporaries that are alive in each step, from their first use to their last."""
    nbytes = runner.temporaries
    uses: dict[int, list[int]] = {}
    for step in range(runner.step_count):
        for buffer in runner.call_of(step).buffers:
            uses.setdefault(buffer, []).append(step)
    change = [0] * (runner.step_count + 1)
    for buffer, steps in uses.items():
        change[steps[0]] += nbytes.get(buffer, 0)
        change[steps[-1] + 1] -= nbytes.get(buffer, 0)
    return list(accumulate(change))[:-1]


def _outcome(call: NetworkCall, operator: OperatorReport | None) -> tuple[str, str, float | None]:
    if call.is_host:
        return "host", "a copy between devices" if call.family == DEVICE_COPY else "no kernel for it", None
    if not call.writes:
        return "check", "refuses indices that are out of range", None
    if operator is None:
        return "reused", "in the network", None
    return operator.status, operator.reason, operator.milliseconds


def _kernel(
    operator: OperatorReport, layers: Sequence[Layer], networks: Mapping[str, Sequence[str]], peak: float | None
) -> OperatorRow:
    call = layers[0].call if layers else None
    times = [layer.run for layer in layers if layer.run is not None]
    run = sum(times) if times else None
    counted = sum(layer.call.operations for layer in layers)
    gflops = counted / run / 1e6 if run else 0.0
    return OperatorRow(
        operator.name,
        call.family if call else "",
        ", ".join(f"{name} {value}" for name, value in call.variant.items()) if call else "",
        operator.status,
        operator.reason,
        operator.milliseconds,
        len(layers),
        tuple(networks.get(operator.name, ())),
        run,
        sum(layer.share for layer in layers),
        gflops,
        gflops / peak if peak and gflops else None,
    )


class _Operators:
    """Finds the operators of calls, by their symbols; of several with one symbol the one that has the call's nodes."""

    def __init__(self, operators: Sequence[OperatorReport]) -> None:
        self._known: dict[str, list[OperatorReport]] = {}
        for each in operators:
            self._known.setdefault(each.symbol, []).append(each)

    def of(self, call: NetworkCall) -> OperatorReport | None:
        """Return the operator of a call; None if there is none, as of what the host computes."""
        known = self._known.get(call.symbol, ()) if call.symbol else ()
        return next((each for each in known if {*call.nodes} <= {*each.nodes}), next(iter(known), None))


WIDTH, ROW, CHART = 1000, 24, 160
"""Units of the drawings: their width, the height of a lane, and of the chart of the memory."""

SHOWN = 3
"""Nodes and networks that a row names; the others are in its title."""


class Bar(NamedTuple):
    """A span as it is drawn."""

    x: float
    y: int
    width: float
    kind: str
    title: str


def render(contents: PageContents) -> str:
    """Return the page."""
    total = max((span.began + span.milliseconds for span in contents.spans), default=0.0)
    memory = [layer.memory for layer in contents.layers]
    return template().render(
        c=contents,
        report=contents.report,
        bars=_bars(contents, total),
        total=total,
        lanes=contents.lanes,
        row=ROW,
        width=WIDTH,
        chart=CHART,
        memory=_steps(memory, contents.report.arena),
        peak_memory=max((each for each in memory if each is not None), default=0),
        longest=max((layer.share for layer in contents.layers), default=0.0),
        counted=counted,
        first_of=lambda names: first_of(names, SHOWN),
        size=size,
        ms=_milliseconds,
    )


@cache
def template() -> Template:
    """Return the page's template."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # not what is markup already
    )
    return environment.from_string(Path(__file__).with_name("page.html.j2").read_text(encoding="utf-8"))


def _milliseconds(value: float | None) -> str:
    """Return a time with three figures that count."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def _bars(contents: PageContents, total: float) -> list[Bar]:
    scale, lanes = WIDTH / total if total else 0.0, contents.lanes
    return [
        Bar(
            round(span.began * scale, 2),
            lanes.index(span.lane) * ROW,
            max(round(span.milliseconds * scale, 2), 1.0),
            "step" if span.lane == STEPS else "compile",
            f"{span.name}: {_milliseconds(span.milliseconds)} ms" + (f", {span.detail}" if span.detail else ""),
        )
        for span in contents.spans
    ]


def _steps(values: list[Any], arena: int) -> str:
    """Return the outline of a chart with a step for each value, as points of an SVG polygon."""
    top = max([arena, *(value or 0 for value in values)]) or 1
    wide = WIDTH / (len(values) or 1)
    points = [(0.0, float(CHART))]
    for index, value in enumerate(values):
        y = CHART * (1 - (value or 0) / top)
        points += [(index * wide, y), ((index + 1) * wide, y)]
    points.append((WIDTH, float(CHART)))
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
