"""Where a subscriber's messages come from: a queue of RabbitMQ (or of another broker of kombu), or a list of Redis.

Promises of both:
- Messages come in the order in which they were published, and one by one: the next one when the last is acknowledged.
- What was not acknowledged comes again, first of all, also when its consumer was killed.
- Of several consumers of one name, one works and the others stand by.

kombu's own consumer on Redis keeps none of these: it takes a message and notes that in two steps, returns a message to
every queue that is bound like this one, and at its other end. So a message moves to a second list (`….taken`) in one
step and lies there until it is acknowledged, and a key with a time limit (`….consumer`) says who consumes.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from kombu import Connection, Consumer
from kombu.exceptions import KombuError

from app.doorbell import transport_options
from app.outbox.broker import CONSUMER, PREFIX, declare, kind_of, queue_of

#: RabbitMQ gives up a consumer that has said nothing for two of these, as it does not while it handles an event.
HEARTBEAT_SECONDS = 120
#: After so long without a sign of life, another consumer takes over on Redis.
GONE_SECONDS = 10.0
WAIT_SECONDS = 1.0


@dataclass(frozen=True)
class Taken:
    """A message; what it is acknowledged by."""

    body: str | bytes
    tag: Any


class Source(Protocol):
    def take(self, seconds: float) -> Taken | None:
        """The next message, or None after this time."""
        ...

    def ack(self, taken: Taken) -> None: ...

    def drop(self, taken: Taken) -> None:
        """It cannot be read, and does not come again."""
        ...

    def close(self) -> None:
        """What was taken and not acknowledged goes to the next consumer."""
        ...


class Lost(OSError):
    """Another consumer has taken over, or the broker has forgotten that it was us."""


def connection(url: str) -> Connection:
    heartbeat = HEARTBEAT_SECONDS if url.startswith(("amqp", "pyamqp")) else 0
    return Connection(url, transport_options=transport_options(url), connect_timeout=3, heartbeat=heartbeat)


def errors(of: Connection) -> tuple[type[BaseException], ...]:
    return (*of.connection_errors, *of.channel_errors, OSError, KombuError)


def open_source(of: Connection, name: str, patterns: Sequence[str]) -> Source:
    of.ensure_connection(max_retries=0, reraise_as_library_errors=False)
    channel: Any = of.channel()
    if kind_of(of) == "redis":
        # In this order: the relay takes a queue of somebody who looks on away when nobody does.
        source = RedisList(channel, name)
        source.begin()
        declare(channel, name, patterns)
        return source
    declare(channel, name, patterns)
    return Queued(of, channel, name, patterns)


class Queued:
    def __init__(self, of: Connection, channel: Any, name: str, patterns: Sequence[str]) -> None:
        self._connection, self._channel = of, channel
        self._got: list[Any] = []
        self._consumer = Consumer(
            channel, queues=[queue_of(name, patterns)], on_message=self._got.append, auto_declare=False
        )
        self._consumer.qos(prefetch_count=1)
        self._consumer.consume()

    def take(self, seconds: float) -> Taken | None:
        if not self._got:
            with suppress(TimeoutError):
                self._connection.drain_events(timeout=seconds)
            if self._connection.supports_heartbeats and self._connection.heartbeat:
                self._connection.heartbeat_check()
        if not self._got:
            return None
        message = self._got.pop(0)
        return Taken(message.body, message)

    def ack(self, taken: Taken) -> None:
        taken.tag.ack()

    def drop(self, taken: Taken) -> None:
        taken.tag.reject(requeue=False)

    def close(self) -> None:
        self._channel.close()


#: Whose turn it is says the key; the oldest that was taken comes first, also if an answer to us was lost.
_NEXT = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.error_reply('LOST') end
return redis.call('LINDEX', KEYS[3], -1) or redis.call('LMOVE', KEYS[2], KEYS[3], 'RIGHT', 'LEFT')
"""
_ACK = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.error_reply('LOST') end
return redis.call('LREM', KEYS[2], -1, ARGV[2])
"""
_EXTEND = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""
_LEAVE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class RedisList:
    def __init__(self, channel: Any, name: str) -> None:
        self._channel = channel
        with channel.conn_or_acquire() as client:
            # It draws a connection of the pool for each command, so that threads may share it.
            self._client: Any = client
        self._queue = f"{PREFIX}{name}"
        self._taken, self._lock = f"{self._queue}.taken", f"{self._queue}{CONSUMER}"
        self._me = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4()}"
        self._scripts = {text: self._client.register_script(text) for text in (_NEXT, _ACK, _EXTEND, _LEAVE)}
        self._ours = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._live, name="tidemill-subscriber", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        self._become(time.monotonic())

    def take(self, seconds: float) -> Taken | None:
        end = time.monotonic() + seconds
        if not self._ours and not self._become(end):
            return None
        item = self._run(_NEXT, [self._lock, self._queue, self._taken], self._me)
        if item is None and (left := end - time.monotonic()) > 0:
            # Moved while nobody else can be at it; that it is ours still is asked again.
            self._client.blmove(self._queue, self._taken, min(left, WAIT_SECONDS), "RIGHT", "LEFT")
            item = self._run(_NEXT, [self._lock, self._queue, self._taken], self._me)
        return None if item is None else Taken(_body(item), item)

    def ack(self, taken: Taken) -> None:
        self._run(_ACK, [self._lock, self._taken], self._me, taken.tag)

    def drop(self, taken: Taken) -> None:
        self.ack(taken)

    def close(self) -> None:
        self._closed.set()
        with suppress(Exception):
            if self._ours:
                self._run(_LEAVE, [self._lock], self._me)
        with suppress(Exception):
            self._channel.close()

    def _become(self, end: float) -> bool:
        """The one that consumes, if nobody else is."""
        while not self._client.set(self._lock, self._me, nx=True, px=int(GONE_SECONDS * 1000)):
            if (left := end - time.monotonic()) <= 0 or self._closed.wait(min(left, WAIT_SECONDS / 4)):
                return False
        self._ours = True
        return True

    def _live(self) -> None:
        """Also while an event is handled."""
        while not self._closed.wait(GONE_SECONDS / 3):
            if self._ours:
                with suppress(Exception):
                    self._run(_EXTEND, [self._lock], self._me, int(GONE_SECONDS * 1000))

    def _run(self, script: str, keys: list[str], *arguments: Any) -> Any:
        from redis.exceptions import ResponseError

        try:
            return self._scripts[script](keys=keys, args=list(arguments))
        except ResponseError as error:
            if "LOST" in str(error):
                self._ours = False
                raise Lost("another consumer of this name has taken over") from None
            raise


def _body(item: bytes) -> bytes | str:
    """Out of kombu's envelope; what is none is the caller's to complain of."""
    try:
        envelope = json.loads(item)
        body: str = envelope["body"]
        encoded = envelope["properties"].get("body_encoding") == "base64"
        return base64.b64decode(body) if encoded else body
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return item
