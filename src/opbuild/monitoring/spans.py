"""Spans: the events of the process as spans of OpenTelemetry.

Steps that a caller waits for are its spans while they last; what has ended when it is told, an operator that was
compiled or a request to a remote store, becomes a span of the time that it took, within the step that it was for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

from opbuild.errors import BuildError, OptionError
from opbuild.events import Began, CompileFinished, Ended, NetworkBound, ProcessEvent, RemoteAsked, subscribe
from opbuild.platform.records import NamedTuple

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider


class _Open(NamedTuple):
    """A step under way: its span, and how to leave that."""

    span: Span
    token: Token[Context]


_OPEN: ContextVar[tuple[_Open, ...]] = ContextVar("opbuild_spans", default=())


def instrument(tracer_provider: TracerProvider | None = None) -> Callable[[], None]:
    """Make spans of OpenTelemetry from now on, in this process: of ``compile``, bindings, compiles, remote requests.

    Args:
        tracer_provider: Makes the tracer; None: the global one.

    Returns:
        A function that ends it.

    Raises:
        OptionError: If it is no tracer provider.
        BuildError: If ``opentelemetry-api`` is not installed.
    """
    if tracer_provider is not None and not hasattr(tracer_provider, "get_tracer"):
        raise OptionError(f"tracer_provider is {tracer_provider!r}", "give a TracerProvider of OpenTelemetry, or none")
    try:
        from opentelemetry import trace
    except ImportError as error:
        message = f"OpenTelemetry cannot be loaded: {error}"
        raise BuildError(message, "pip install 'opbuild[metrics]'") from error
    from opbuild.version import __version__

    return subscribe(_Spans(trace.get_tracer("opbuild", __version__, tracer_provider)))


class _Spans:
    """Makes a tracer's spans of events."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def __call__(self, event: ProcessEvent) -> None:
        if isinstance(event, Began):
            self._begin(event)
        elif isinstance(event, Ended):
            _end(event)
        elif isinstance(event, NetworkBound):
            _describe(event)
        elif isinstance(event, CompileFinished):
            name, seconds = "opbuild.compile_operator", event.milliseconds / 1e3
            given = {"operator": event.name, "reason": event.reason, "bytes": event.nbytes}
            self._add(name, seconds, given, event.failure)
        elif isinstance(event, RemoteAsked):
            given = {"place": event.place, "request": event.request, "name": event.name, "code": event.code,
                     "read": event.read, "written": event.written}  # fmt: skip
            self._add("opbuild.remote", event.seconds, given, event.failure, is_client=True)

    def _begin(self, event: Began) -> None:
        from opentelemetry import context, trace

        span = self._tracer.start_span(f"opbuild.{event.step}")
        _OPEN.set((*_OPEN.get(), _Open(span, context.attach(trace.set_span_in_context(span)))))

    def _add(
        self, name: str, seconds: float, given: Mapping[str, Any], failure: str, *, is_client: bool = False
    ) -> None:
        """Add the span of something that has ended now."""
        from opentelemetry.trace import SpanKind

        now = time.time_ns()
        kind = SpanKind.CLIENT if is_client else SpanKind.INTERNAL
        span = self._tracer.start_span(name, kind=kind, attributes=_named(given), start_time=now - round(1e9 * seconds))
        _fail(span, failure)
        span.end(now)


def _end(event: Ended) -> None:
    from opentelemetry import context

    if _OPEN.get():  # else it began before anybody asked for spans
        *others, (span, token) = _OPEN.get()
        _OPEN.set(tuple(others))
        context.detach(token)
        if event.network:
            span.set_attribute("opbuild.network", event.network)
        _fail(span, event.failure)
        span.end()


def _describe(event: NetworkBound) -> None:
    """Say in the span of a binding what was bound."""
    if _OPEN.get():  # as above
        sizes = [f"{each.name}:{','.join(map(str, each.type.shape))}" for each in event.inputs]
        given = {"how": event.how, "inputs": sizes, "pending": event.pending,
                 "fallbacks": sum(event.fallbacks.values())}  # fmt: skip
        _OPEN.get()[-1].span.set_attributes(_named(given))


def _named(given: Mapping[str, Any]) -> dict[str, Any]:
    return {f"opbuild.{name}": value for name, value in given.items()}


def _fail(span: Span, failure: str) -> None:
    if failure:
        from opentelemetry.trace import Status, StatusCode

        span.set_status(Status(StatusCode.ERROR, failure))
