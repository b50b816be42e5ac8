"""How everything stands. The schema is made of the figures themselves."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timedelta
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from app import glance
from app.console.api.plain import plain
from app.console.endpoint import PREFIX, Answer, Asked, Endpoint
from app.console.schemas import FLAG, INTEGER, MOMENT, NUMBER, TEXT, Schema, listing, optional, record
from app.db import transaction
from app.figures import Executions, ProcessFigures, QueueFigures, ReactiveFigures, StageFigures, WorkerFigures
from app.outbox.listing import Lag
from app.tokens import Action

_KINDS: dict[Any, Schema] = {
    bool: FLAG,
    int: INTEGER,
    float: NUMBER,
    str: TEXT,
    datetime: MOMENT,
    timedelta: {**NUMBER, "description": "Seconds."},
}


def _schema(kind: Any) -> Schema:
    if kind in _KINDS:
        return _KINDS[kind]
    if get_origin(kind) is list:
        return listing(_schema(get_args(kind)[0]))
    # Something, or None.
    (inner,) = (each for each in get_args(kind) if each is not NoneType)
    return optional(_schema(inner))


def _figures(kind: Any, **more: Schema) -> Schema:
    hints = get_type_hints(kind)
    found = {each.name: _schema(hints[each.name]) for each in fields(kind)} | more
    return record(*found, **found)


_OPERATION: dict[str, Schema] = {
    **dict.fromkeys(("id", "total", "done", "failed", "skipped"), INTEGER),
    **dict.fromkeys(("kind", "state"), TEXT),
    "why": optional(TEXT),
}
_PARTS: dict[str, Schema] = {
    "queues": listing(_figures(QueueFigures, stands_still=FLAG)),
    "workers": listing(_figures(WorkerFigures)),
    "executions": _figures(Executions, done_per_minute=NUMBER, failed_per_minute=NUMBER),
    "reactive": _figures(ReactiveFigures),
    "stages": _figures(StageFigures),
    "processes": _figures(ProcessFigures),
    "events": _figures(Lag),
    "repairs": {"type": "object", "additionalProperties": INTEGER},
    "operations": listing(record(*_OPERATION, **_OPERATION)),
}


def _look(_: Asked) -> Answer:
    with transaction() as session:
        return Answer(plain(glance.look(session).data()))


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        f"{PREFIX}/status",
        "status",
        "Shows queues, workers and the last minutes: what 'tidemill status --json' does.",
        Action.READ,
        _look,
        {200: record(*_PARTS, **_PARTS)},
    ),
)
