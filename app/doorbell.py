"""The doorbell: tickets that tell workers to look, sent best effort and never waited for.

A ticket is a Celery message that names a queue (and, so that Flower shows something a person knows, the task that made
it ring). It carries no work: what is done is decided by the claim. A lost ticket costs latency, a duplicate finds
nothing, a forged one does no harm.

`ring` puts a name into a bounded set and returns. One daemon thread, made again after a fork, publishes: bursts
collapse, and while the broker is away the thread waits and nobody else does. What is not rung is found by `dispatch`.
"""

from __future__ import annotations

import atexit

# The broker's client imports it late, which fails once the interpreter is ending: and then the thread may still ring.
import concurrent.futures.thread  # noqa: F401
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kombu import Connection, Producer
from kombu.exceptions import KombuError

from app import faults
from app.settings import settings

log = logging.getLogger(__name__)

TICKET = "tidemill"
#: A ticket that was not taken by then is dropped by the worker; whoever waits is rung for anew.
EXPIRES_SECONDS = 60
#: The most rows that one ticket claims at a time.
TAKE = 500
#: More names than this are dropped: dispatch finds their rows.
MOST_NAMES = 1000
PAUSE_SECONDS, PAUSE_MOST_SECONDS = 0.5, 5.0
#: Between two rounds: a program that commits as fast as it can must not share the processor with a ring for each.
COLLAPSE_SECONDS = 0.005
#: The name of a ticket where no task of a user gives it one.
GENERIC = "tidemill.work"

# The broker may be frozen rather than down: a publish without these hangs for 40 s.
TRANSPORT = {
    "socket_connect_timeout": 3,
    "socket_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 5,
}
# A soft or hard limit of the task must not end a ticket, which serves many jobs, each with limits of its own.
_NO_LIMIT = 10_000_000
_ORIGIN = f"{os.getpid()}@{socket.gethostname()}"


def transport_options(url: str, *, publishing: bool = False) -> dict[str, Any]:
    """What this kind of broker understands. RabbitMQ's heartbeat finds a dead connection of a consumer, for which a
    time limit of reading would only mean that nothing came."""
    if url.startswith(("redis", "rediss", "valkey")):
        return {**TRANSPORT, "priority_steps": [0]}
    if url.startswith(("amqp", "pyamqp")) and publishing:
        return {"connect_timeout": 3, "read_timeout": 5, "write_timeout": 5}
    return {}


@dataclass(frozen=True)
class Bell:
    queue: str
    task: str
    lane: str = "main"
    #: The first and the last shard that are to be looked at; None: all.
    shards: tuple[int, int] | None = None


class Publisher:
    """A connection to the broker and the messages that are sent over it; not shared between threads."""

    def __init__(self, url: str | None = None) -> None:
        url = url or settings().resolved_broker_url()
        self.connection = Connection(url, transport_options=transport_options(url, publishing=True), connect_timeout=3)
        self._producer: Producer | None = None

    def publish(self, bells: Iterable[Bell]) -> None:
        if self._producer is None:
            self._producer = Producer(self._connected())
        for bell in bells:
            faults.reach("ring.before_publish")
            self._producer.publish(
                [[], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}],
                exchange="",
                routing_key=bell.queue,
                serializer="json",
                headers=_headers(bell),
                correlation_id="",
                reply_to="",
                delivery_mode=1,
                retry=False,
            )
            faults.reach("ring.published")

    def _connected(self) -> Connection:
        """Or the error, at once: by itself, kombu would try again for seconds."""
        return self.connection.ensure_connection(max_retries=0, reraise_as_library_errors=False)

    def length(self, queue: str) -> int:
        """How many tickets lie in the broker for this queue; none where the broker does not know it."""
        channel: Any = self._connected().default_channel
        try:
            return int(channel.queue_declare(queue=queue, passive=True).message_count)
        except self.connection.channel_errors:
            # RabbitMQ closes the channel of whoever asks for a queue that is not there.
            self.close()
            return 0

    def close(self) -> None:
        self._producer = None
        with suppress(OSError, KombuError):
            self.connection.close()

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        return (*self.connection.connection_errors, *self.connection.channel_errors, OSError, KombuError)


def _headers(bell: Bell) -> dict[str, Any]:
    ticket = str(uuid.uuid4())
    return {
        "lang": "py",
        # What a user's task does when it is called must not be done for a ticket: only its name is shown.
        "task": GENERIC,
        "shadow": bell.task,
        "id": ticket,
        "root_id": ticket,
        "parent_id": None,
        "group": None,
        "retries": 0,
        "eta": None,
        "expires": _in_utc(time.time() + EXPIRES_SECONDS),
        "timelimit": [_NO_LIMIT, _NO_LIMIT],
        "argsrepr": f"({bell.queue!r}, {str(bell.lane)!r})",
        "kwargsrepr": "{}",
        "origin": _ORIGIN,
        "ignore_result": True,
        TICKET: {"queue": bell.queue, "lane": bell.lane, "take": TAKE}
        | ({} if bell.shards is None else {"shards": list(bell.shards)}),
    }


def _in_utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(seconds))


class Doorbell:
    """The set and its thread. One a process."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], Bell] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._quiet_until = 0.0
        self._busy = False

    def ring(self, bell: Bell) -> None:
        with self._changed:
            if len(self._waiting) < MOST_NAMES:
                self._waiting[(bell.queue, bell.lane)] = bell
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tidemill-doorbell", daemon=True)
                self._thread.start()
            self._changed.notify()

    def flush(self, seconds: float) -> bool:
        """Waits for what is to be rung, unless the broker is away; for programs that end right after a commit."""
        with self._changed:
            return self._changed.wait_for(
                lambda: (not self._waiting and not self._busy) or time.monotonic() < self._quiet_until, seconds
            )

    def _take(self) -> list[Bell]:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting))
            bells = list(self._waiting.values())
            self._waiting.clear()
            self._busy = True
            return bells

    def _run(self) -> None:
        publisher: Publisher | None = None
        pause = PAUSE_SECONDS
        while True:
            bells = self._take()
            try:
                publisher = publisher or Publisher()
                publisher.publish(bells)
                pause = PAUSE_SECONDS
            except Exception as error:  # noqa: BLE001 - the thread must outlive whatever a broker does
                log.warning("the broker does not answer (%s); workers that have theirs find the work", _kind(error))
                if publisher is not None:
                    publisher.close()
                publisher = None
                self._quiet_until = time.monotonic() + pause
                self._done()
                time.sleep(pause)
                pause = min(pause * 2, PAUSE_MOST_SECONDS)
            else:
                self._done()
                time.sleep(COLLAPSE_SECONDS)

    def _done(self) -> None:
        with self._changed:
            self._busy = False
            self._changed.notify_all()


def _kind(error: BaseException) -> str:
    """Without the text, in which some brokers repeat the URL."""
    return type(error).__name__


_doorbell = Doorbell()


def _forked() -> None:
    global _doorbell
    _doorbell = Doorbell()


os.register_at_fork(after_in_child=_forked)
atexit.register(lambda: _doorbell.flush(1.0))


def ring(queue: str, task: str, lane: str = "main") -> None:
    """Tells workers of this queue to look. Returns at once, whatever the broker does."""
    _doorbell.ring(Bell(queue, task, lane))


def flush(seconds: float = 1.0) -> bool:
    return _doorbell.flush(seconds)
