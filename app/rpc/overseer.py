"""Ends calls that keep the server waiting: gRPC itself waits for ever for what a client does not send."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc

LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class _Watched:
    context: grpc.ServicerContext
    until: float
    stream: bool


class Overseer:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[int, _Watched] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidemill-overseer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    @contextmanager
    def waiting(self, context: grpc.ServicerContext, seconds: float) -> Iterator[None]:
        """For the client to send something: at most so long."""
        self._watch(context, seconds, stream=False)
        try:
            yield
        finally:
            self._forget(context)

    def follow(self, context: grpc.ServicerContext, seconds: float) -> None:
        """A stream, to its end."""
        self._watch(context, seconds, stream=True)
        if not context.add_callback(lambda: self._forget(context)):
            self._forget(context)  # it has ended already

    def end_streams(self) -> None:
        with self._lock:
            streams = [each.context for each in self._watched.values() if each.stream]
        for context in streams:
            context.cancel()

    def _watch(self, context: grpc.ServicerContext, seconds: float, *, stream: bool) -> None:
        with self._lock:
            self._watched[id(context)] = _Watched(context, time.monotonic() + seconds, stream)

    def _forget(self, context: grpc.ServicerContext) -> None:
        with self._lock:
            self._watched.pop(id(context), None)

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            now = time.monotonic()
            with self._lock:
                late = [each.context for each in self._watched.values() if each.until < now]
            for context in late:
                context.cancel()
