"""A user's module for the disaster drills: work that waits at a gate which is a file, and a release that is bad."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import sqlalchemy as sa
from celery import shared_task

from tests.kit.waiting import wait_until
from tidemill import Flow, Promise, Retry, actor, decider, this_job

#: What the release does that a worker has: `good`, `fails`, `kills`.
RELEASE = os.environ.get("EXERCISE_RELEASE", "good")
TABLES = "CREATE TABLE public.hauled (value text NOT NULL)"


@actor
def pack(number: int) -> int:
    return number


@actor(work_timeout="5s", max_restarts=1, retry=Retry(max_attempts=2, delay="50ms"))
def ship(number: int) -> int:
    match RELEASE:
        case "fails":
            raise RuntimeError(f"order {number} has no weight")
        case "kills":
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            pass
    return number * 2


@decider
def deliver(flow: Flow, number: int) -> Promise[int]:
    return flow.call(ship, flow.call(pack, number))


def _wait_at(gate: str, number: int) -> None:
    """Whoever is here has said so, without the database."""
    Path(f"{gate}.{number}").touch()
    wait_until(Path(gate).exists, 300)


@actor(work_timeout="10min")
def errand(gate: str, number: int) -> int:
    _wait_at(gate, number)
    return number


@decider
def send(flow: Flow, gate: str, number: int) -> Promise[int]:
    return flow.call(errand, gate, number)


@shared_task
def haul(gate: str, number: int) -> None:
    _wait_at(gate, number)
    with this_job().transaction() as session:
        session.execute(sa.text("INSERT INTO public.hauled VALUES (:value)"), {"value": str(number)})
