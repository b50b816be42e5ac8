"""A user's module: actors and deciders, for worker processes. Each call is noted in `public.called`, in a transaction
of its own, so that a test can count.

`journey`: four actors and a decider in between, whose value is that of another task.
`crowd`: many of `toil`, which does what it is told: wait at a gate, fail, hang, take its process along.
`squeeze` and `march` have limits, `hasty` has little time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine, Row
from sqlalchemy.orm import Session

from app.db import autocommit
from processes.model import PREFERENCES
from tests.kit import tasks
from tests.kit.waiting import pause, wait_for_file, wait_until
from tidemill import Flow, Retry, actor, decider, this_task

MODULES = f"{tasks.__name__},{__name__}"
TABLES = """
CREATE TABLE public.called (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    actor text NOT NULL,
    value text NOT NULL,
    process_id bigint NOT NULL,
    task int NOT NULL,
    key text NOT NULL,
    pid int NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    inside int NOT NULL
);
CREATE TABLE public.gate (name text PRIMARY KEY);
"""
_BEGUN = sa.text(
    "INSERT INTO public.called (actor, value, process_id, task, key, pid, inside) "
    "VALUES (:actor, :value, :process_id, :task, :key, :pid, 1 + "
    "(SELECT count(*) FROM public.called WHERE actor = :actor AND ended_at IS NULL)) RETURNING id"
)
_ENDED = sa.text("UPDATE public.called SET ended_at = clock_timestamp() WHERE id = :id")


@contextmanager
def noted(value: object) -> Iterator[None]:
    """The row is there when the call begins, and says when it ended well; and how many were inside then."""
    task = this_task()
    words = {"actor": task.actor, "value": str(value), "process_id": task.process_id, "task": task.id}
    with autocommit() as connection:
        more = {"key": task.idempotency_key, "pid": os.getpid()}
        row = connection.execute(_BEGUN, words | more).scalar_one()
    yield
    with autocommit() as connection:
        connection.execute(_ENDED, {"id": row})


def _gate_is_open(name: str) -> bool:
    with autocommit() as connection:
        return bool(connection.execute(sa.text("SELECT 1 FROM public.gate WHERE name = :n"), {"n": name}).first())


@actor
def stride(value: int) -> int:
    with noted(value):
        return value + 1


@actor
def meet(left: int, right: int) -> str:
    with noted(f"{left},{right}"):
        return f"{left}+{right}"


@decider
def midway(flow: Flow, value: int) -> Any:
    with noted(value):
        return flow.call(stride, flow.call(stride, value))


@decider
def journey(flow: Flow, number: int) -> Any:
    """Its value is `f"{number + 3}+{number + 11}"`, after seven tasks."""
    with noted(number):
        left = flow.call(midway, flow.call(stride, number))
        right = flow.call(stride, number + 10)
        return flow.call(meet, left, right, after=[right])


JOURNEY_TASKS = 7


def value_of(number: int) -> str:
    return f"{number + 3}+{number + 11}"


@actor(work_timeout="5s", max_restarts=3, retry=Retry(max_attempts=3, delay="10ms", most="10ms"))
def toil(way: str) -> str:
    with noted(way):
        match way.partition(":")[0]:
            case "gate":
                wait_until(lambda: _gate_is_open("toil"), 300)
            case "slow":
                pause(0.3)
            case "silent":  # without the database
                pause(1.5)
            case "file":  # until it is there, without the database
                wait_for_file(way.partition(":")[2])
            case "hang":
                pause(300)
            case "beat":  # longer than a work timeout of ten seconds
                for _ in range(24):
                    pause(0.5)
                    this_task().heartbeat()
            case "poison":
                os.kill(os.getpid(), signal.SIGKILL)
            case "bad":
                raise RuntimeError("failed on purpose")
            case _:
                pass
    return way


@actor(max_parallel=3)
def squeeze(way: str) -> str:
    with noted(way):
        pause(0.02)
    return way


@actor(rate_limit="20/s")
def march(way: str) -> str:
    with noted(way):
        return way


@actor(work_timeout="2s", max_restarts=2)
def hasty(way: str) -> str:
    with noted(way):
        if way == "hang":
            pause(300)
    return way


_ACTORS = {each.__name__: each for each in (toil, squeeze, march, hasty)}


@decider(process_timeout="1d")
def crowd(flow: Flow, ways: list[str], name: str = "toil") -> int:
    """As many tasks as there are ways."""
    with noted(len(ways)):
        for way in ways:
            flow.call(_ACTORS[name], way)
        return len(ways)


# What tests say and ask.


def create(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(TABLES)


def open_gate(session: Session, name: str = "toil") -> None:
    session.execute(sa.text("INSERT INTO public.gate VALUES (:name)"), {"name": name})
    session.commit()


def called(session: Session, name: str, *, ended: bool = False) -> list[str]:
    """What an actor was called with, in order."""
    session.rollback()
    done = "AND ended_at IS NOT NULL" if ended else ""
    query = sa.text(f"SELECT value FROM public.called WHERE actor = :actor {done} ORDER BY id")  # noqa: S608
    return list(session.execute(query, {"actor": name}).scalars())


def spans(session: Session, name: str) -> Sequence[Row[Any]]:
    session.rollback()
    return session.execute(
        sa.text("SELECT * FROM public.called WHERE actor = :actor ORDER BY begun_at"), {"actor": name}
    ).all()


def registered(session: Session, name: str) -> bool:
    session.rollback()
    return session.execute(sa.select(PREFERENCES.c.name).where(PREFERENCES.c.name == name)).first() is not None
