"""Recording: the events of a build with the time of each, as a timeline by worker and as a trace for Chrome."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from opbuild.events import CompileFinished, CompileStarted, Event, Observer, Taken, Working, ignore
from opbuild.platform.records import NamedTuple
from opbuild.runtime.profile import Profile

STEPS = "steps"
"""The lane of what is done besides compiling."""


class Span(NamedTuple):
    """Something that a build did.

    Attributes:
        lane: ``steps``, or ``worker`` and a number.
        detail: Why it was done, or empty.
    """

    lane: str
    name: str
    began: float
    milliseconds: float
    detail: str = ""


class EventRecording:
    """An observer that keeps events with their times and passes them on; threads of a build may call it."""

    def __init__(self, observer: Observer = ignore, clock: Callable[[], float] = time.perf_counter) -> None:
        self._observer, self._clock = observer, clock
        self._lock = threading.Lock()
        self._began = clock()
        self._events: list[tuple[float, Event]] = []

    def __call__(self, event: Event) -> None:
        """Observe one event."""
        with self._lock:
            self._events.append((1e3 * (self._clock() - self._began), event))
        self._observer(event)

    @property
    def milliseconds(self) -> float:
        """Time since the recording began."""
        return 1e3 * (self._clock() - self._began)

    def spans(self, end: float) -> tuple[Span, ...]:
        """Return the spans of work until ``end``, in the order in which they began.

        Events do not say which worker compiles: an operator stands in the first lane that is free when it begins.
        """
        with self._lock:
            events = [(now, event) for now, event in self._events if now <= end]
        return tuple(sorted([*_compiles(events, end), *_steps(events, end)], key=lambda span: span.began))


def _compiles(events: list[tuple[float, Event]], end: float) -> list[Span]:
    lanes: list[str] = []  # the operator in each lane, empty if it is free
    running: dict[str, tuple[int, float, str]] = {}
    spans = []

    def finish(name: str, now: float) -> None:
        if name in running:
            lane, began, reason = running.pop(name)
            lanes[lane] = ""
            spans.append(Span(f"worker {lane + 1}", name, began, now - began, reason))

    for now, event in events:
        if isinstance(event, CompileStarted):
            if "" not in lanes:
                lanes.append("")
            lane = lanes.index("")
            lanes[lane] = event.name
            running[event.name] = (lane, now, event.reason)
        elif isinstance(event, (CompileFinished, Taken)):
            finish(event.name, now)
    for name in list(running):
        finish(name, end)
    return spans


def _steps(events: list[tuple[float, Event]], end: float) -> list[Span]:
    """Return the steps besides compiling; each lasts until the next begins or its last event, whichever is there."""
    begun: list[tuple[str, float, float]] = []
    for now, event in events:
        if not isinstance(event, Working):
            continue
        if begun and begun[-1][0] == event.step:
            begun[-1] = (event.step, begun[-1][1], now)
        else:
            begun.append((event.step, now, now))
    spans = []
    for index, (step, began, last) in enumerate(begun):
        following = begun[index + 1][1] if index + 1 < len(begun) else end
        spans.append(Span(STEPS, step, began, (last if last > began else following) - began))
    return spans


BUILD, RUN = 1, 2
"""The processes of a trace: the build with a thread for each worker, and a run."""


def trace(network: str, spans: Sequence[Span], profile: Profile | None = None) -> str:
    """Return a trace as JSON: a build's steps, and the calls of a run one after the other, each with its median."""
    lanes = sorted({span.lane for span in spans}, key=lambda lane: (lane != STEPS, len(lane), lane))
    events = []
    if spans:
        events += [_name("process_name", BUILD, 0, f"build of {network}")]
        events += [_name("thread_name", BUILD, number, lane) for number, lane in enumerate(lanes)]
    events += [
        _complete(BUILD, lanes.index(span.lane), span.name, span.began, span.milliseconds, {"why": span.detail})
        for span in spans
    ]
    if profile is not None:
        events += [_name("process_name", RUN, 0, f"run of {network}"), _name("thread_name", RUN, 0, "calls")]
        events += _run(profile)
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, indent=None)


def _run(profile: Profile) -> list[dict[str, Any]]:
    events, now = [], 0.0
    for row in profile.rows:
        call = row.call
        details = {"kernel": call.kernel, "family": call.family, "shape": list(call.shape)}
        counted: dict[str, Any] = {"bytes": call.nbytes} if call.nbytes else {}
        if call.operations:
            counted["GFLOP/s"] = round(row.gflops, 1)
        events.append(_complete(RUN, 0, ", ".join(call.nodes), now, row.milliseconds, details | counted))
        now += row.milliseconds
    return events


def _complete(process: int, thread: int, name: str, began: float, milliseconds: float, details: Any) -> dict[str, Any]:
    first, last = round(1e6 * began), round(1e6 * (began + milliseconds))  # rounded alike: what follows begins there
    at = {"ts": first / 1e3, "dur": (last - first) / 1e3}
    return {"ph": "X", "pid": process, "tid": thread, "name": name, **at, "args": details}


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "ts": 0, "pid": process, "tid": thread, "name": kind, "args": {"name": name}}
