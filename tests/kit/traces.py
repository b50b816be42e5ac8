"""Spans that are kept in memory, of what this process does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app import tracing
from app.settings import settings


class Spans:
    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def all(self) -> list[ReadableSpan]:
        """In the order of their ends."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        found = self.named(name)
        assert len(found) == 1, [span.name for span in self.all()]
        return found[0]

    def parent(self, span: ReadableSpan) -> ReadableSpan | None:
        """None: it begins its trace."""
        if span.parent is None:
            return None
        return next(each for each in self.all() if number(each) == span.parent.span_id)

    def linked(self, span: ReadableSpan) -> list[ReadableSpan]:
        wanted = [link.context.span_id for link in span.links]
        return [each for each in self.all() if number(each) in wanted]


def number(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def traces(spans: list[ReadableSpan]) -> set[int]:
    return {span.context.trace_id for span in spans if span.context is not None}


@contextmanager
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setenv("TIDEMILL_TRACING", "yes")
    settings.cache_clear()
    tracing.forget()
    yield Spans(exporter)
    tracing.forget()
