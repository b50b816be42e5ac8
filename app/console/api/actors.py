"""Actors that are programs elsewhere: they poll, give signs of life, and release."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from app.clock import duration
from app.console.api.bodies import HEARTBEAT, POLL, REFUSED, RELEASE, RELEASED, REMAINING, TASK
from app.console.endpoint import PREFIX, Answer, Asked, Endpoint
from app.console.schemas import MOMENT, listing, record
from app.db import autocommit
from app.errors import BadRequest
from app.tokens import Action, Holder
from processes import outside

LONGEST_WAIT = timedelta(seconds=60)


def _who(holder: Holder) -> str:
    """As it is shown beside what it has claimed or released."""
    return f"{holder.name}@http"


def _poll(asked: Asked) -> Answer | None:
    tasks = outside.poll(asked.path["name"], asked.body.get("limit", 1), worker=_who(asked.holder))
    if not tasks:
        return None
    now = _now()
    found = [asdict(each) | _until(each.until, now) | {"pass_key": str(each.pass_key)} for each in tasks]
    return Answer({"tasks": found})


def _wait(asked: Asked) -> float:
    try:
        wait = duration(asked.body.get("wait", 0))
    except ValueError as error:
        raise BadRequest(f"wait: {error}") from None
    if wait > LONGEST_WAIT:
        raise BadRequest(f"wait={asked.body['wait']} is more than {LONGEST_WAIT.total_seconds():g}s")
    return wait.total_seconds()


def _heartbeat(asked: Asked) -> Answer:
    until = outside.heartbeat(*_task(asked), pass_key=UUID(asked.body["pass_key"]))
    return Answer(_until(until, _now()))


def _release(asked: Asked) -> Answer:
    body = asked.body
    released = outside.release(
        *_task(asked),
        pass_key=UUID(body["pass_key"]),
        epoch=body["epoch"],
        value=body.get("value"),
        error=body.get("error"),
        worker=_who(asked.holder),
    )
    data: dict[str, Any] = {"outcome": released.outcome, "why": released.why}
    if released.outcome != "refused":
        return Answer(data)
    return Answer(data | {"error": {"code": "refused", "message": released.why}}, 409)


def _task(asked: Asked) -> tuple[int, int]:
    return asked.path["process_id"], asked.path["task"]


def _actor(asked: Asked) -> str:
    return outside.actor_of(*_task(asked))


def _now() -> datetime:
    with autocommit() as connection:
        found: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
    return found


def _until(until: datetime, now: datetime) -> dict[str, Any]:
    return {"until": until.isoformat(), "remaining": round(max(0.0, (until - now).total_seconds()), 3)}


POLLING = Endpoint(
    "POST",
    f"{PREFIX}/actors/{{name}}/poll",
    "poll",
    "Hands out what is ready for an actor, best first; waits for it if asked to.",
    Action.ACT,
    _poll,
    {200: record("tasks", tasks=listing(TASK))},
    subject=lambda asked: str(asked.path["name"]),
    body=POLL,
    waits=_wait,
    nothing=Answer({"tasks": []}),
    errors=(404, 422),
)
ENDPOINTS: tuple[Endpoint, ...] = (
    POLLING,
    Endpoint(
        "POST",
        f"{PREFIX}/tasks/{{process_id}}/{{task}}/heartbeat",
        "heartbeat",
        "Says that a task is still worked on.",
        Action.ACT,
        _heartbeat,
        {200: record("until", "remaining", until=MOMENT, remaining=REMAINING)},
        subject=_actor,
        named=False,
        body=HEARTBEAT,
        errors=(404, 409, 422),
    ),
    Endpoint(
        "POST",
        f"{PREFIX}/tasks/{{process_id}}/{{task}}/release",
        "release",
        "Brings the value of a task, or the error with which it failed.",
        Action.ACT,
        _release,
        {200: RELEASED, 409: REFUSED},
        subject=_actor,
        named=False,
        body=RELEASE,
        errors=(404, 409, 422),
    ),
)
