"""Spans of OpenTelemetry: which there are, whose children they are, and how long they took."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import opbuild
from opbuild import events
from opbuild.config import Config
from opbuild.events import with_subscribers
from opbuild.platform.background import Background
from opbuild.store.blobs import Memory
from opbuild.store.concurrent_map import results_of
from opbuild.store.remote.retry import Retried
from support.samples import conv, disk_builder, needed


@pytest.fixture
def provider() -> TracerProvider:
    """What makes tracers."""
    return TracerProvider()


@pytest.fixture
def exported(provider: TracerProvider) -> Iterator[InMemorySpanExporter]:
    """The spans that have ended, from now on."""
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    end = opbuild.instrument(provider)
    yield exporter
    end()


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """Return the spans by name, the last of each."""
    return {span.name: span for span in exporter.get_finished_spans()}


def parent(span: ReadableSpan) -> int | None:
    """Return the number of the span in which one is."""
    return None if span.parent is None else span.parent.span_id


def number(span: ReadableSpan) -> int:
    """Return the number of a span."""
    assert span.context is not None
    return span.context.span_id


def test_steps_are_within_those_that_wait_for_them(provider: TracerProvider, exported: InMemorySpanExporter) -> None:
    """The program's own span has the call, that has the binding, and the thread that compiles its operators."""
    with provider.get_tracer("program").start_as_current_span("request"), events.step(events.COMPILE) as named:
        named("net")
        with events.step(events.BIND):
            events.tell(events.NetworkBound("net", [], events.BUILT, "", {"NonZero": 2}, 3, 0.1))
            work = Background(lambda: events.tell(events.CompileFinished("conv_1_0", 250.0, 1, 1, 9, "new")), "test")
            work.start()
            work.result()
    spans = by_name(exported)
    chain = [spans[name] for name in ("request", "opbuild.compile", "opbuild.bind", "opbuild.compile_operator")]
    assert [parent(span) for span in chain] == [None, *(number(span) for span in chain[:-1])]
    _, compiled, bound, operator = chain
    assert compiled.attributes == {"opbuild.network": "net"}
    assert bound.attributes == {
        "opbuild.how": "built", "opbuild.inputs": (), "opbuild.pending": 3, "opbuild.fallbacks": 2,
    }  # fmt: skip
    assert operator.attributes == {"opbuild.operator": "conv_1_0", "opbuild.reason": "new", "opbuild.bytes": 9}
    assert operator.start_time is not None
    assert operator.end_time is not None
    assert operator.end_time - operator.start_time == 250_000_000


def test_each_operator_that_is_compiled_is_a_span(config: Config, exported: InMemorySpanExporter) -> None:
    """One that could not be compiled says so; the step that failed for it does, too."""
    with (
        disk_builder(config, with_subscribers(events.ignore)) as builder,
        pytest.raises(opbuild.errors.CompileError),
        events.step(events.BIND),
    ):
        builder.build(needed(conv(1), conv(2, fake="raise")), "net")
    spans = exported.get_finished_spans()
    operators = [span for span in spans if span.name == "opbuild.compile_operator"]
    assert {span.status.status_code for span in operators} == {StatusCode.UNSET, StatusCode.ERROR}
    (bound,) = (span for span in spans if span.name == "opbuild.bind")
    assert bound.status.status_code == StatusCode.ERROR
    assert bound.status.description is not None
    assert bound.status.description.startswith("CompileError: ")
    assert {parent(span) for span in operators} == {number(bound)}


def test_requests_to_a_remote_store_are_spans_of_a_client(exported: InMemorySpanExporter) -> None:
    """Also those that several threads make at once."""
    blobs = Retried(Memory({"one": b"111"}), place="redis://host")
    with events.step(events.BIND):
        results_of(["one", "nothing"], lambda name: blobs.get(name, 10))
    requests = [span for span in exported.get_finished_spans() if span.name == "opbuild.remote"]
    assert {span.kind for span in requests} == {SpanKind.CLIENT}
    assert {parent(span) for span in requests} == {number(by_name(exported)["opbuild.bind"])}
    given = {(span.attributes or {})["opbuild.name"]: span.attributes for span in requests}
    common = {"opbuild.place": "redis://host", "opbuild.request": "get", "opbuild.written": 0}
    assert given == {
        "one": {**common, "opbuild.name": "one", "opbuild.code": "", "opbuild.read": 3},
        "nothing": {**common, "opbuild.name": "nothing", "opbuild.code": "absent", "opbuild.read": 0},
    }


def test_who_ends_it_gets_no_more_spans(provider: TracerProvider) -> None:
    """And a step that began before anybody asked has none."""
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with events.step(events.BIND):
        end = opbuild.instrument(provider)
    end()
    end()
    with events.step(events.BIND):
        pass
    assert exporter.get_finished_spans() == ()


def test_without_opentelemetry_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(opbuild.errors.BuildError, match="OpenTelemetry cannot be loaded") as raised:
        opbuild.instrument()
    assert raised.value.hint == "pip install 'opbuild[metrics]'"
