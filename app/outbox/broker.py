"""The broker's side: the exchange, the queues of subscriptions, the mark, and messages that it has confirmed.

RabbitMQ confirms messages one by one; they are awaited for a batch as a whole, which is ten times as fast. On Redis a
batch is one pipeline, and its replies are the confirmation. Other brokers of kombu get message by message, and what
that is worth is theirs.

The mark is one message in a queue of its own. A broker that has lost it has lost the rest as well. No two marks are the
same, and Redis takes a batch only while the mark is the one that was seen: a relay that was frozen while the broker was
wiped, and set up again by another one, must not come before what that one repeats. On RabbitMQ it has no connection
then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from kombu import Connection, Exchange, Producer, Queue, binding
from kombu.exceptions import KombuError

from app.doorbell import transport_options
from app.outbox.reading import Message
from app.settings import settings

EXCHANGE = Exchange("tidemill.saved", "topic", durable=True)
MARK = "tidemill.relay.mark"
PREFIX = "tidemill.events."
#: Queues of those that look on for a while. What nobody has read from for so long goes.
PASSING = f"{PREFIX}passing."
PASSING_SECONDS = 60
#: Who consumes from a queue, on Redis.
CONSUMER = ".consumer"
CONFIRM_SECONDS = 10
PERSISTENT = 2
JSON, UTF8 = "application/json", "utf-8"
_PLAIN = {"content_type": JSON, "content_encoding": UTF8, "retry": False}
#: Of several marks, on Redis.
OLDEST = -1
#: More than a batch ever has.
COMMANDS = 10_000_000


class Refused(Exception):
    """The broker answers, and does not take this message; those before it are taken."""

    def __init__(self, message: Message, index: int, why: str) -> None:
        super().__init__(f"the broker refuses event {message.id} ({message.kind} {message.entity_id}): {why}")
        self.index = index


class Wiped(Exception):
    """The mark is not the one that was seen: nothing of this batch was taken."""


class Unconfirmed(OSError):
    """The broker took messages and says nothing of them."""


def queue_of(name: str, patterns: Sequence[str]) -> Queue:
    """The queue of a subscription, declared alike by everyone: RabbitMQ refuses another form."""
    passing = f"{PREFIX}{name}".startswith(PASSING)
    return Queue(
        f"{PREFIX}{name}",
        bindings=[binding(EXCHANGE, routing_key=pattern) for pattern in patterns],
        durable=True,
        expires=PASSING_SECONDS if passing else None,
        queue_arguments=None if passing else {"x-single-active-consumer": True},
    )


def kind_of(connection: Connection) -> str:
    """`amqp`, `redis`, or another transport of kombu."""
    return str(connection.transport.driver_type)


def declare(channel: Any, name: str, patterns: Sequence[str]) -> None:
    """The queue with its bindings, whatever this process believes to have declared before."""
    EXCHANGE(channel).declare()
    queue = queue_of(name, patterns)
    if (state := getattr(channel, "state", None)) is not None:
        state.queue_bindings_delete(queue.name)
    queue(channel).declare()


def release(channel: Any, name: str, patterns: Iterable[str]) -> None:
    """Takes bindings away."""
    queue = f"{PREFIX}{name}"
    if hasattr(channel, "conn_or_acquire"):
        _release_redis(channel, queue, set(patterns))
        return
    for pattern in patterns:
        channel.queue_unbind(queue=queue, exchange=EXCHANGE.name, routing_key=pattern)


def _release_redis(channel: Any, queue: str, patterns: set[str] | None = None) -> None:
    """kombu takes away none of its bindings on Redis, except with the queue."""
    with channel.conn_or_acquire() as client:
        for pattern, regex, bound in channel.get_table(EXCHANGE.name):
            if bound == queue and (patterns is None or pattern in patterns):
                for key in (channel.keyprefix_queue, channel.keyprefix_binding_permanent):
                    client.srem(key % EXCHANGE.name, channel.sep.join([pattern, regex, bound]))


def bound(channel: Any, name: str) -> set[str] | None:
    """The patterns of a queue as the broker knows them; None where it cannot be asked."""
    if not hasattr(channel, "conn_or_acquire"):
        return None
    return {pattern for pattern, _, queue in channel.get_table(EXCHANGE.name) if queue == f"{PREFIX}{name}"}


def remove(channel: Any, name: str) -> None:
    """The queue, its bindings and what is in it."""
    queue = f"{PREFIX}{name}"
    if hasattr(channel, "conn_or_acquire"):
        _release_redis(channel, queue)
        with channel.conn_or_acquire() as client:
            client.delete(queue, f"{queue}.taken", f"{queue}{CONSUMER}")
        return
    channel.queue_delete(queue=queue)


def remove_mark(channel: Any) -> None:
    """As a broker that has lost all: the relay makes the queues again, and publishes again what it published lately."""
    if hasattr(channel, "conn_or_acquire"):
        with channel.conn_or_acquire() as client:
            client.delete(MARK)
        return
    channel.queue_delete(queue=MARK)


class Broker:
    """A connection of the relay; not shared between threads."""

    def __init__(self, url: str | None = None) -> None:
        url = url or settings().resolved_events_url()
        self.connection = Connection(url, transport_options=transport_options(url, publishing=True), connect_timeout=3)
        self._channel: Any = None
        #: For questions: RabbitMQ closes the channel of whoever asks for what is not there.
        self._asking: Any = None
        self._producer: Any = None
        #: Patterns by name, as far as they were declared over this connection.
        self._declared: dict[str, tuple[list[str], str]] = {}
        self._agreed = False
        #: As it was seen; None: not yet. Of RabbitMQ it is known that there is one.
        self._mark: bytes | None = None
        self._last: bytes | None = None
        #: Of what RabbitMQ has not confirmed yet: places in the batch, by delivery tag.
        self._waiting: dict[int, int] = {}
        self._refused: list[int] = []
        self._tag = 0

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        return (*self.connection.connection_errors, *self.connection.channel_errors, OSError, KombuError)

    def close(self) -> None:
        self._channel = self._producer = self._asking = None
        self.forget()
        with suppress(*self.errors):
            self.connection.close()

    def _connected(self) -> Any:
        if self._channel is None:
            # Or the error, at once: by itself, kombu would try again for seconds.
            self.connection.ensure_connection(max_retries=0, reraise_as_library_errors=False)
            self._waiting, self._refused, self._tag = {}, [], 0
            channel: Any = self.connection.channel()
            if self._amqp:
                channel.confirm_select()
                channel.events["basic_ack"].add(self._acknowledged)
                channel.events["basic_nack"].add(self._not_acknowledged)
            self._producer = Producer(channel, auto_declare=False)
            self._channel = channel
        return self._channel

    @property
    def _amqp(self) -> bool:
        return kind_of(self.connection) == "amqp"

    # The mark

    def marked(self) -> bool:
        """Whether the broker still has what it was given, as far as is known."""
        self._last = self._found()
        return self._last is not None

    def is_known(self) -> bool:
        """Whether that is the mark of the time before. What was read before a mark was first seen may be of before a
        wipe."""
        known, self._mark = self._last == self._mark, self._last
        return known

    def _found(self) -> bytes | None:
        channel = self._connected()
        if kind_of(self.connection) == "redis":
            with channel.conn_or_acquire() as client:
                mark: bytes | None = client.lindex(MARK, OLDEST)
                return mark
        return b"" if self._is_marked() else None

    def _is_marked(self) -> bool:
        # Where we are new: RabbitMQ closes the channel at the first message for an exchange that it does not have.
        new = self._amqp and not self._agreed
        if new and not self._has(lambda channel: EXCHANGE(channel).declare(passive=True)):
            return False
        found: list[int] = []
        return self._has(lambda channel: found.append(_count(channel, MARK))) and found[0] > 0

    def _has(self, ask: Callable[[Any], object]) -> bool:
        if self._asking is None:
            self._asking = self.connection.channel() if self._amqp else self._connected()
        try:
            ask(self._asking)
        except self.connection.channel_errors as error:
            if str(getattr(error, "reply_code", "")) != "404":
                raise
            self._asking = None
            return False
        return True

    def mark(self) -> None:
        channel = self._connected()
        Queue(MARK, durable=True)(channel).declare()
        self._send([("", MARK, b"{}", "")])
        self._mark = self._found()

    # Queues

    def agree(self, subscriptions: Mapping[str, tuple[Sequence[str], Sequence[str], str]]) -> None:
        """What is subscribed to in the database has its queue, and what is not any more has none. With each name come
        its patterns, those that it had before, and since when there is one of this name: the queue of an earlier one
        was deleted by whoever ended that."""
        channel = self._connected()
        if not self._agreed:
            EXCHANGE(channel).declare()
        wanted = {name: (list(patterns), since) for name, (patterns, _, since) in subscriptions.items()}
        for name, (patterns, since) in wanted.items():
            if self._declared.get(name) != (patterns, since):
                declare(channel, name, patterns)
                before = bound(channel, name)
                release(channel, name, (set(subscriptions[name][1]) if before is None else before) - set(patterns))
        for name in self._declared.keys() - wanted.keys():
            remove(channel, name)
        self._declared, self._agreed = wanted, True

    def forget(self) -> None:
        """The broker has lost what was declared."""
        self._declared, self._agreed = {}, False

    # Messages

    def is_unheard(self) -> bool:
        """What is published now would go to nobody; False where the broker does not say."""
        channel = self._connected()
        return kind_of(self.connection) == "redis" and not channel.get_table(EXCHANGE.name)

    def publish(self, messages: Sequence[Message]) -> None:
        """In this order; returns when the broker has them all."""
        if not messages:
            return
        if kind_of(self.connection) == "redis":
            self._pipeline(messages)
            return
        sent = [(EXCHANGE.name, each.routing_key, each.body.encode(), str(each.id)) for each in messages]
        self._send(sent)
        if self._refused:
            index = min(self._refused)
            raise Refused(messages[index], index, "it does not confirm it")

    def _send(self, messages: Sequence[tuple[str, str, bytes, str]]) -> None:
        self._refused = []
        for index, (exchange, key, body, name) in enumerate(messages):
            self._tag += 1
            if self._amqp:
                self._waiting[self._tag] = index
            self._producer.publish(
                body,
                exchange=exchange,
                routing_key=key,
                delivery_mode=PERSISTENT,
                message_id=name,
                headers=_headers(exchange, key),
                **_PLAIN,
            )
        while self._waiting:
            try:
                self.connection.drain_events(timeout=CONFIRM_SECONDS)
            except TimeoutError as error:
                raise Unconfirmed(f"{len(self._waiting)} events were not confirmed") from error

    def _pipeline(self, messages: Sequence[Message]) -> None:
        """To each queue by its name. For who is bound, kombu would ask Redis with each message; and it would return a
        message that was not acknowledged to all of them."""
        channel = self._connected()
        table = channel.get_table(EXCHANGE.name)
        queues = {key: self._bound(channel, table, key) for key in {each.routing_key for each in messages}}
        with closing(channel.create_publish_batch(COMMANDS)) as batch:
            self._only_while_marked(batch.pipeline)
            for each in messages:
                for queue in queues[each.routing_key]:
                    properties = {"delivery_mode": PERSISTENT, "message_id": str(each.id)}
                    message = channel.prepare_message(
                        each.body.encode(),
                        content_type=JSON,
                        content_encoding=UTF8,
                        headers=_headers(EXCHANGE.name, each.routing_key),
                        properties=properties,
                    )
                    batch.publish(message, exchange="", routing_key=queue)
            try:
                batch.flush()
            except KombuError as error:
                from redis.exceptions import WatchError

                if isinstance(error.__cause__, WatchError):
                    raise Wiped from None
                raise

    def _only_while_marked(self, pipeline: Any) -> None:
        """As one transaction, which Redis refuses if the mark has changed by then."""
        pipeline.watch(MARK)
        if pipeline.lindex(MARK, OLDEST) != self._mark:
            raise Wiped
        pipeline.multi()

    def _bound(self, channel: Any, table: list[Any], key: str) -> list[str]:
        found = []
        for queue in sorted(channel.typeof(EXCHANGE.name).lookup(table, EXCHANGE.name, key, None)):
            if queue.startswith(PASSING) and not self._read_from(channel, queue):
                _release_redis(channel, queue)
                continue
            found.append(queue)
        return found

    @staticmethod
    def _read_from(channel: Any, queue: str) -> bool:
        """Whoever looked on and was killed has left its queue behind, which nothing would ever empty."""
        with channel.conn_or_acquire() as client:
            if client.exists(f"{queue}{CONSUMER}"):
                return True
            client.delete(queue, f"{queue}.taken")
            return False

    def _acknowledged(self, tag: int, multiple: bool) -> None:  # noqa: FBT001 - as py-amqp calls it
        self._answered(tag, multiple=multiple)

    def _not_acknowledged(self, tag: int, multiple: bool) -> None:  # noqa: FBT001
        self._refused += self._answered(tag, multiple=multiple)

    def _answered(self, tag: int, *, multiple: bool) -> list[int]:
        tags = [each for each in self._waiting if each <= tag] if multiple else [tag]
        return [self._waiting.pop(each) for each in tags if each in self._waiting]


def _headers(exchange: str, key: str) -> dict[str, str]:
    """On Redis a message says nowhere else what it was published to."""
    return {"tidemill_exchange": exchange, "tidemill_routing_key": key}


def _count(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue=queue, passive=True).message_count)
