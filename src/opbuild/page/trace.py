"""Traces of builds and runs for Chrome's tracing and Perfetto.

Source: the Trace Event Format, complete events (``ph`` X) with times in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from opbuild.page.recording import STEPS, Span
from opbuild.runtime.profile import Profile

BUILD, RUN = 1, 2
"""The processes of a trace: the build with a thread for each worker, and a run."""


def trace(network: str, spans: Sequence[Span], profile: Profile | None = None) -> str:
    """Return a trace as JSON.

    Args:
        network: Its name.
        spans: What the build did.
        profile: The times of a run's calls, which stand one after the other, each with its median; None: no run.
    """
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
