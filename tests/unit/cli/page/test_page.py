"""The page and the trace of a build, from made events and records."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any

from opbuild.cli.page.recording import EventRecording, Span, trace
from opbuild.cli.page.render import PageContents, gather, memory_of, render
from opbuild.events import PACKING, PREPARING, CompileFinished, CompileStarted, Event, Working
from opbuild.report import OperatorReport, Report
from opbuild.runtime.calls import NetworkCall
from opbuild.runtime.profile import Profile, ProfileRow


def recorded(*events: tuple[float, Event]) -> EventRecording:
    """Return a recording of events at given seconds."""
    times = iter([0.0, *(time for time, _ in events)])
    recording = EventRecording(clock=lambda: next(times))
    for _, event in events:
        recording(event)
    return recording


def contents(count: int, network: str = "net") -> PageContents:
    """Return the contents of a page of so many calls, the last one on the host."""
    calls = [
        NetworkCall("conv_1__kernel0", (f"layer{n}",), "conv", {"width": 4}, (1, 8), 2000, 64, (n, n + 1))
        for n in range(count)
    ]
    calls.append(NetworkCall("", ("odd<node>",), "Unique", {}, (3,), 0, 12, (count,)))
    runner: Any = SimpleNamespace(
        call_of=lambda step: calls[step], step_count=len(calls), temporaries=dict.fromkeys(range(count + 1), 100)
    )
    nodes = tuple(f"layer{n}" for n in range(count))
    operator = OperatorReport("conv_1_0", "built", "not in the store", nodes, 41.0, "conv_1__kernel0")
    report = Report(network, (operator,), {"Unique": 1}, {"build": 50.0}, arena=300, level="x86-64-v3")
    rows = tuple(ProfileRow(call, 0.002, 1 / len(calls)) for call in calls)
    spans = recorded(
        (0.01, CompileStarted("conv_1_0", "not in the store")), (0.05, CompileFinished("conv_1_0", 41.0, 1, 1))
    ).spans(60.0)
    profile = Profile(network, rows, 1.0, 3)
    others: dict[str, Sequence[str]] = {"conv_1_0": ["other"]}
    return gather(report, [runner], spans=spans, profile=profile, networks=others, peak=100.0, threads=2, version="1")


def test_operators_that_are_compiled_at_once_stand_in_lanes_of_their_own() -> None:
    """A lane that is free again is used again; what never finished ends with the recording."""
    events = [
        (1.0, CompileStarted("a", "new")),
        (2.0, CompileStarted("b", "new")),
        (3.0, CompileFinished("a", 2000, 1, 3)),
        (4.0, CompileStarted("c", "new")),
    ]
    spans = recorded(*events).spans(6000.0)
    shown = [(span.lane, span.name, span.began, span.milliseconds) for span in spans]
    assert shown == [
        ("worker 1", "a", 1000.0, 2000.0),
        ("worker 2", "b", 2000.0, 4000.0),
        ("worker 1", "c", 4000.0, 2000.0),
    ]


def test_steps_last_until_the_next_or_their_last_event() -> None:
    """A step that counts its bytes ends with them; another one when the next begins."""
    events = [(1.0, Working(PREPARING)), (2.0, Working(PACKING)), (5.0, Working(PACKING, 9, 9))]
    spans = recorded(*events).spans(8000.0)
    assert [(span.name, span.began, span.milliseconds) for span in spans] == [
        (PREPARING, 1000.0, 1000.0),
        (PACKING, 2000.0, 3000.0),
    ]


def test_what_is_told_after_the_end_is_no_part_of_the_build() -> None:
    """A step that began after the end was given a negative duration."""
    events = [(1.0, Working(PREPARING)), (2.0, CompileStarted("a", "new")), (4.0, Working(PACKING))]
    spans = recorded(*events).spans(3000.0)
    assert [(span.name, span.milliseconds) for span in spans] == [(PREPARING, 2000.0), ("a", 1000.0)]


def test_memory_is_what_is_alive_in_each_call() -> None:
    """A buffer lives from its first use to its last; what lies elsewhere does not count."""
    touched = [(0, 9), (0, 1), (1, 2), (0, 2)]
    runner: Any = SimpleNamespace(
        call_of=lambda step: NetworkCall("k__kernel0", ("n",), "", {}, (), 0, 0, touched[step]),
        step_count=4,
        temporaries={0: 1, 1: 10, 2: 100},
    )
    assert memory_of(runner) == [1, 11, 111, 101]


def test_layers_say_what_became_of_them() -> None:
    """A call finds its operator by its symbol; the host's is a fallback; networks that share it are named."""
    made = contents(3)
    assert [layer.status for layer in made.layers] == ["built"] * 3 + ["host"]
    assert made.layers[0].gflops == 1.0
    assert made.layers[0].peak == 0.01
    (kernel,) = made.kernels
    assert (kernel.calls, kernel.networks, kernel.variant) == (3, ("other",), "width 4")


def test_a_call_finds_its_operator_among_several_of_one_kernel() -> None:
    """One that refuses indices has none; of two with one kernel it is the one that has the call's nodes."""
    calls = [
        NetworkCall("conv_1__kernel0", ("one",), "conv", {}, (8,), 0, 64),
        NetworkCall("conv_1__kernel0", ("other",), "conv", {}, (8,), 0, 64),
        NetworkCall("opbuild_indices", ("one",), "", {}, (8,), 0, 8, writes=0),
    ]
    runner: Any = SimpleNamespace(call_of=lambda step: calls[step], step_count=len(calls), temporaries={})
    operators = tuple(
        OperatorReport("conv_77_0", "reused", why, (node,), 5.0, "conv_1__kernel0")
        for node, why in (("one", "it was there"), ("other", "in place of another"))
    )
    made = gather(Report("net", operators), [runner])
    assert [(layer.status, layer.reason) for layer in made.layers] == [
        ("reused", "it was there"),
        ("reused", "in place of another"),
        ("check", "refuses indices that are out of range"),
    ]
    assert [(kernel.name, kernel.calls) for kernel in made.kernels] == [("conv_77_0", 1)] * 2


def test_the_page_is_whole_and_names_are_no_markup() -> None:
    """It loads nothing, has a row for each layer, and shows a name that looks like a tag as it is."""
    page = render(contents(1000, network="<script>alert(1)</script>"))
    assert page.count('data-state="built"') == 1000
    assert "odd&lt;node&gt;" in page
    assert "<script>alert" not in page
    assert "http://" not in page
    assert "https://" not in page
    assert " src=" not in page
    assert "Unique" in page
    assert "nominal" in page


def test_a_trace_has_a_thread_for_each_worker_and_the_calls_one_after_the_other() -> None:
    """It is JSON in the Trace Event Format, times in microseconds."""
    made = contents(2)
    events = json.loads(trace("net", made.spans, made.profile))["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert [(event["pid"], event["ts"], event["dur"]) for event in complete] == [
        (1, 10000.0, 40000.0), (2, 0.0, 2.0), (2, 2.0, 2.0), (2, 4.0, 2.0),
    ]  # fmt: skip
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} >= {"worker 1", "run of net"}


def test_what_follows_in_a_trace_begins_where_the_last_ended() -> None:
    """Nothing overlaps by a rounded nanosecond, which viewers would draw as one within the other."""
    times = [random.Random(5).uniform(1e-4, 3) for _ in range(300)]
    calls = [NetworkCall("conv", (f"layer{n}",), "conv", {}, (1,), 0, 8, (n,)) for n in range(len(times))]
    rows = tuple(ProfileRow(call, time, 0.1) for call, time in zip(calls, times, strict=True))
    began = list(accumulate(times, initial=3.3))
    spans = [Span("steps", f"step{n}", begin, end - begin) for n, (begin, end) in enumerate(pairwise(began))]
    events = json.loads(trace("net", spans, Profile("net", rows, 1.0, 3)))["traceEvents"]
    for process in (1, 2):
        found = [(event["ts"], event["dur"]) for event in events if event["ph"] == "X" and event["pid"] == process]
        assert len(found) == len(times)
        for (begin, duration), (following, _) in pairwise(found):
            assert round(1e3 * (begin + duration)) == round(1e3 * following)
