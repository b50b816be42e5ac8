"""What Celery does with kombu when the broker goes away under a worker that holds a ticket."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kombu import Connection, Consumer, Producer, Queue
from kombu.common import ignore_errors

from app.celery import app
from app.embedded import OwnServers


def test_a_ticket_that_was_not_acknowledged_does_not_end_the_worker(servers: OwnServers, broker_url: str) -> None:
    """A worker has two channels, one for tickets and one for control; both wait for messages at that moment. Whatever
    is raised here, and is no error of a connection, would end it."""
    connection: Connection = app.connection_for_read(broker_url)
    held: list[object] = []
    tickets = _consumer(connection.default_channel, "jobs", held)
    _consumer(connection.channel(), "control", held)
    Producer(connection).publish({}, routing_key="jobs", declare=tickets.queues)
    connection.drain_events(timeout=10)
    assert len(held) == 1
    with suppress(TimeoutError):
        connection.drain_events(timeout=0.1)
    servers.broker.kill()
    try:
        with suppress(Exception):
            connection.collect(socket_timeout=1)
        ignore_errors(connection, connection.close)
    finally:
        servers.broker.start()


def _consumer(channel: Any, queue: str, held: list[object]) -> Consumer:
    found = Consumer(channel, [Queue(queue)], callbacks=[lambda _, message: held.append(message)], accept=["json"])
    found.qos(prefetch_count=2)
    found.consume()
    return found
