"""Traces of OpenTelemetry, from who put work in to its end; off unless `TIDEMILL_TRACING=yes`.

- Where it is off, nothing of OpenTelemetry is imported, and a call here returns one object that does nothing.
- The context of who put work in (W3C `traceparent`) is kept in its row. What works on it goes on with that trace: a
  span for the wait until it was claimed, one for the work, one for its end. A try after a failure links to the last.
- Within a span of work, that span is the current one: what the user's code traces, or puts in, belongs to it.
- A program that has set up OpenTelemetry keeps what it has. Otherwise spans go where the variables `OTEL_…` say.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from app.errors import SettingsError
from app.logs import without_secrets
from app.settings import settings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

_ERROR_LIMIT = 500
_FLUSH_MILLISECONDS = 2000
_WAIT, _END, _PUT = "wait", "end", "put in"


class Off:
    """In the place of every span."""

    __slots__ = ()
    #: What is to be written into a row that is put in, or goes back to be tried again.
    traceparent: str | None = None

    def __enter__(self) -> Off:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def ended(self, outcome: str, error: str | None = None) -> None:
        """How the work ended, in one word; its error is shortened, and has no secrets."""

    def again(self, trace: str | None) -> str | None:
        """For the row that goes back: its trace, and this try."""
        return trace


OFF = Off()


class On(Off):
    """A span that is the current one inside of its block."""

    __slots__ = ("_span", "_token", "traceparent")

    def __init__(self, span: Span) -> None:
        self._span = span
        self.traceparent = _written(span)

    def __enter__(self) -> On:
        from opentelemetry import context, trace

        self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(self, *told: object) -> None:
        from opentelemetry import context

        context.detach(self._token)
        if told[0] is not None:
            self._failed(type(told[1]).__name__)
        self._span.end()

    def ended(self, outcome: str, error: str | None = None) -> None:
        self._span.set_attribute("tidemill.outcome", outcome)
        if error is not None:
            self._failed(error)

    def _failed(self, error: str) -> None:
        from opentelemetry.trace import StatusCode

        self._span.set_status(StatusCode.ERROR, without_secrets(error)[:_ERROR_LIMIT])

    def again(self, trace: str | None) -> str | None:
        """The producer's first: this is what every try belongs to."""
        first = (trace or "").split(" ")[0] or self.traceparent
        return f"{first} {self.traceparent}"


def on() -> bool:
    """Whether there are any spans. Who works on many rows in a row asks once."""
    return _tracer() is not None


def put_in(task: str, queue: str) -> Off:
    """By whoever does so now; its `traceparent` is to be written into the row."""
    if (tracer := _tracer()) is None:
        return OFF
    from opentelemetry.trace import SpanKind

    return On(tracer.start_span(f"{_PUT} {task}", kind=SpanKind.PRODUCER, attributes=_about(task, queue)))


def work(kind: str, task: str, row: Any, trace: str | None = None, **ids: Any) -> Off:
    """On a row that was claimed; `ids` say which. The span of its wait is made as well."""
    if (tracer := _tracer()) is None:
        return OFF
    from opentelemetry.trace import Link, SpanKind, get_current_span

    first, _, last = (trace or "").partition(" ")
    parent = _read(first)
    words = _about(task, row.queue) | {"tidemill.kind": kind, "tidemill.attempt": row.attempts}
    words |= {f"tidemill.{name}": value for name, value in ids.items()}
    waited = tracer.start_span(f"{_WAIT} {row.queue}", parent, start_time=_moment(row.ready), attributes=words)
    waited.end(_moment(row.claimed_at))
    links = [Link(get_current_span(_read(last)).get_span_context())] if last else []
    return On(tracer.start_span(task, parent, kind=SpanKind.CONSUMER, links=links, attributes=words))


def end(task: str, of: Sequence[str] = ()) -> Off:
    """Saving how work ended: within its block, or of many that are saved together, by what they have written."""
    if (tracer := _tracer()) is None:
        return OFF
    from opentelemetry.trace import Link, get_current_span

    links = [Link(get_current_span(_read(each)).get_span_context()) for each in of[1:]]
    return On(tracer.start_span(f"{_END} {task}", _read(of[0]) if of else None, links=links))


def flush() -> None:
    """Before a process ends that does not say goodbye."""
    if _known[0] == os.getpid() and _known[1] is not None:
        from opentelemetry import trace

        with suppress(Exception):
            # Of a provider that has it.
            trace.get_tracer_provider().force_flush(_FLUSH_MILLISECONDS)  # type: ignore[attr-defined]


#: By which process it was made: what sends spans is a thread.
_known: tuple[int, Tracer | None] = (0, None)


def _tracer() -> Tracer | None:
    global _known
    if _known[0] != os.getpid():
        _known = (os.getpid(), _make() if settings().tracing else None)
    return _known[1]


def forget() -> None:
    """Settings or provider are others now."""
    global _known
    _known = (0, None)


def _make() -> Tracer:
    check()
    from opentelemetry import trace

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        own = Resource.create()
        if str(own.attributes.get("service.name", "unknown_service")).startswith("unknown_service"):
            own = own.merge(Resource({"service.name": "tidemill"}))
        provider = TracerProvider(resource=own)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
    return trace.get_tracer("tidemill")


def check() -> None:
    """When a service starts: what it is told to do needs to be installed."""
    if not settings().tracing:
        return
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError:
        raise SettingsError("TIDEMILL_TRACING=yes needs more packages: install tidemill[tracing]") from None


def _about(task: str, queue: str) -> dict[str, Any]:
    return {"messaging.system": "tidemill", "messaging.destination.name": queue, "tidemill.task": task}


def _written(span: Span) -> str | None:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    found: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(found, trace.set_span_in_context(span))
    return found.get("traceparent")


def _read(traceparent: str) -> Context:
    """Of what is no trace, an empty context: the span begins one. It is not that of whoever polls here."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent}, Context())


def _moment(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000_000)
