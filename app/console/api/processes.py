"""Processes: started, searched for, looked at."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import sqlalchemy as sa

from app.console.api.bodies import (
    FOUND,
    ID,
    OF_FOUND,
    OF_PROCESS,
    OF_TASK,
    OF_TEMPLATE,
    SEARCH,
    SHOW,
    SHOWN,
    START,
    TASKS_MOST,
    TEMPLATES,
)
from app.console.api.plain import plain, words
from app.console.endpoint import PREFIX, Answer, Asked, Endpoint
from app.console.schemas import record
from app.db import transaction
from app.errors import BadRequest, NotFound
from app.tokens import Action
from processes import finding, lookup, showing, starting, templates
from processes.filters import TIMES, read
from processes.model import PROCESS
from processes.shown import read_value


def _start(asked: Asked) -> Answer:
    given = dict(asked.body)
    name, args = given.pop("name"), given.pop("args", [])
    return Answer({"process_id": starting.start(name, *args, **given)})


def _type(asked: Asked) -> str:
    process_id = asked.path["process_id"]
    with transaction() as session:
        found = session.execute(sa.select(PROCESS.c.name).where(PROCESS.c.id == process_id)).scalar_one_or_none()
    if found is None:
        raise NotFound(f"there is no process {process_id}")
    return str(found)


def _show(asked: Asked) -> Answer:
    """Without what its tasks were called with and came to, which may be a lot."""
    process_id, limit = asked.path["process_id"], asked.query.get("limit", TASKS_MOST)
    part = showing.Part(asked.query.get("after", 0), limit + 1)
    with showing.one_moment() as session:
        found = showing.load(session, process_id, answers=1, text=1, part=part)
        query = sa.select(sa.cast(PROCESS.c.value, sa.Text)).where(PROCESS.c.id == process_id)
        value = read_value(session.execute(query).scalar_one())
    tasks = [words(each, OF_TASK) for each in found.tasks[:limit]]
    after = found.tasks[limit - 1].number if len(found.tasks) > limit else None
    return Answer(words(found, OF_PROCESS) | {"value": plain(value), "tasks": tasks, "after": after})


def _search(asked: Asked) -> Answer:
    given = dict(asked.body)
    limit, before_id = given.pop("limit", 50), given.pop("before_id", None)
    template, parameters = given.pop("template", None), given.pop("parameters", None)
    if parameters and template is None:
        raise BadRequest("parameters belong to a template, and none is given")
    own = read(
        {name: each.upper() if name in TIMES and "-" in each else each for name, each in given.items()},
        datetime.now(UTC),
    )
    with transaction() as session:
        filters = own
        if template is not None:
            saved = templates.filters(session, template, parameters or {})
            filters = replace(saved, **{name: getattr(own, name) for name in given})
        # As it is written first: whoever may not ask for it is not told whether it is there.
        asked.allow(Action.READ, filters.name or "")
        if filters.name is not None:
            filters = replace(filters, name=lookup.process_type(session, filters.name))
            asked.allow(Action.READ, filters.name or "")
        found = finding.found(session, replace(filters, before_id=before_id), limit)
    last = found[-1].id if len(found) == limit else None
    return Answer({"processes": [words(each, OF_FOUND) for each in found], "before_id": last})


def _templates(_: Asked) -> Answer:
    with transaction() as session:
        found = templates.listed(session)
    return Answer({"templates": [words(each, OF_TEMPLATE) for each in found]})


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        f"{PREFIX}/processes",
        "start",
        "Registers a process that begins with this decider; with an idempotency_key, once.",
        Action.ENQUEUE,
        _start,
        {200: record("process_id", process_id=ID)},
        subject=lambda asked: str(asked.body["name"]),
        body=START,
        key="idempotency_key",
        errors=(404, 422),
    ),
    Endpoint(
        "POST",
        f"{PREFIX}/processes/search",
        "search",
        "Finds processes by all that is given, the newest first; before_id of the answer is that of the next page.",
        Action.READ,
        _search,
        {200: FOUND},
        subject=None,
        body=SEARCH,
        errors=(404, 422),
    ),
    Endpoint(
        "GET",
        f"{PREFIX}/processes/{{process_id}}",
        "show",
        "Shows a process: what it has come to, and how its tasks stand; of very many, after of the answer belongs into "
        "the query of the next page.",
        Action.READ,
        _show,
        {200: SHOWN},
        subject=_type,
        query=SHOW,
        errors=(404,),
    ),
    Endpoint(
        "GET",
        f"{PREFIX}/templates",
        "templates",
        "Lists the searches that were saved, with the parameters that they need.",
        Action.READ,
        _templates,
        {200: TEMPLATES},
    ),
)
