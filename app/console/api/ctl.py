"""The control table: moved forward, and read."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from app.console.api.bodies import ID
from app.console.api.plain import plain
from app.console.endpoint import PREFIX, Answer, Asked, Endpoint
from app.console.schemas import FLAG, INTEGER, MOMENT, TEXT, Schema, listing, mapping, moment_of, optional, record
from app.db import transaction
from app.errors import BadRequest, NotFound
from app.tokens import Action
from triggers import ctl, foresee
from triggers.ctl import Parameter
from triggers.names import LONGEST

#: Of one call; each is a row that is locked.
PARAMETERS_MOST = 100
#: Of one page.
VALUES_MOST = 1000
_NAME = {"type": "string", "minLength": 1, "maxLength": LONGEST, "pattern": r"^[^\x00-\x1f\x7f-\x9f]*$"}
_PATTERN = {**_NAME, "description": "The entity; * stands for any text."}
_LIMIT = {**INTEGER, "minimum": 1, "maximum": VALUES_MOST}
ADVANCE = record("entity", "values", entity=_NAME, values=mapping(_NAME, MOMENT, PARAMETERS_MOST, 1), dry_run=FLAG)
_MOVED = record(*("entity", "parameter", "value", "moved"), entity=TEXT, parameter=TEXT, value=MOMENT, moved=FLAG)
_START = record("task", "pool", "held", task=TEXT, pool=TEXT, held=optional(TEXT))
ADVANCED = record(
    *("dry_run", "values", "would_start"), dry_run=FLAG, values=listing(_MOVED), would_start=listing(_START)
)
OF_VALUE: dict[str, Schema] = {
    "entity": TEXT,
    "parameter": TEXT,
    "value": MOMENT,
    "changed_at": MOMENT,
    "version": INTEGER,
    "epoch": INTEGER,
}
VALUE = record(*OF_VALUE, **OF_VALUE)
NEXT = record("after_entity", "after_parameter", after_entity=TEXT, after_parameter=TEXT)
VALUES = record("values", "next", values=listing(VALUE), next=optional(NEXT))
OF_CHANGE: dict[str, Schema] = {
    "id": INTEGER,
    "entity": TEXT,
    "parameter": TEXT,
    "value": MOMENT,
    "previous": optional(MOMENT),
    "changed_at": MOMENT,
    "restated": FLAG,
    "xid": INTEGER,
}
HISTORY = record("history", "before_id", history=listing(record(*OF_CHANGE, **OF_CHANGE)), before_id=optional(ID))


def _advance(asked: Asked) -> Answer:
    entity, dry_run = asked.body["entity"], asked.body.get("dry_run", False)
    values: dict[Parameter, Any] = {
        (entity, parameter): moment_of(text) for parameter, text in asked.body["values"].items()
    }
    moved = foresee.would_move(values) if dry_run else ctl.advance_many(values)
    starts = []
    if dry_run:
        with transaction() as session:
            starts = foresee.would_start(session, {name: values[name] for name in moved})
    told = [
        {"entity": entity, "parameter": name[1], "value": plain(value), "moved": name in moved}
        for name, value in values.items()
    ]
    return Answer({"dry_run": dry_run, "values": told, "would_start": [asdict(each) for each in starts]})


def _value(asked: Asked) -> Answer:
    entity, parameter = asked.query["entity"], asked.query["parameter"]
    found = ctl.of(entity, parameter)
    if not found:
        raise NotFound(f"{entity}.{parameter} has no value: check the name, or advance it first")
    return Answer(plain(asdict(found[0])))


def _values(asked: Asked) -> Answer:
    pattern, limit = asked.query.get("entity"), asked.query.get("limit", 100)
    after = (asked.query.get("after_entity"), asked.query.get("after_parameter"))
    if (after[0] is None) != (after[1] is None):
        raise BadRequest("after_entity and after_parameter belong together: give both, or neither")
    page = None if after[0] is None or after[1] is None else (after[0], after[1])
    found = ctl.values(pattern, limit=limit, after=page)
    last = found[-1] if len(found) == limit else None
    then = last and {"after_entity": last.entity, "after_parameter": last.parameter}
    return Answer({"values": [plain(asdict(each)) for each in found], "next": then})


def _history(asked: Asked) -> Answer:
    limit = asked.query.get("limit", 50)
    found = ctl.history(
        asked.query["entity"], asked.query["parameter"], limit=limit, before_id=asked.query.get("before_id")
    )
    last = found[-1].id if len(found) == limit else None
    return Answer({"history": [plain(asdict(each)) for each in found], "before_id": last})


def _entity(asked: Asked) -> str:
    # A pattern begins with what the names that it stands for begin with: what holds for it holds for them.
    return str(asked.body.get("entity") or asked.query.get("entity", ""))


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        f"{PREFIX}/ctl/advance",
        "advance",
        "Moves parameters of an entity forward, all of them or none; with dry_run, says what that would start.",
        Action.ADVANCE,
        _advance,
        {200: ADVANCED},
        subject=_entity,
        body=ADVANCE,
        errors=(409, 422),
    ),
    Endpoint(
        "GET",
        f"{PREFIX}/ctl/value",
        "value",
        "Shows how far one parameter has got.",
        Action.READ,
        _value,
        {200: VALUE},
        subject=_entity,
        query=record("entity", "parameter", entity=_NAME, parameter=_NAME),
        errors=(404, 422),
    ),
    Endpoint(
        "GET",
        f"{PREFIX}/ctl",
        "values",
        "Lists parameters with their values, by name; next of the answer belongs into the query of the next page.",
        Action.READ,
        _values,
        {200: VALUES},
        subject=_entity,
        query=record(entity=_PATTERN, after_entity=_NAME, after_parameter=_NAME, limit=_LIMIT),
        errors=(422,),
    ),
    Endpoint(
        "GET",
        f"{PREFIX}/ctl/history",
        "history",
        "Lists the changes of a parameter, the latest first; before_id of the answer is that of the next page.",
        Action.READ,
        _history,
        {200: HISTORY},
        subject=_entity,
        query=record("entity", "parameter", entity=_NAME, parameter=_NAME, before_id=ID, limit=_LIMIT),
        errors=(422,),
    ),
)
