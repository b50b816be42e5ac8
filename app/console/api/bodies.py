"""What the routes of actors and processes take, and what they answer."""

from __future__ import annotations

from app.console.schemas import (
    ANY,
    FLAG,
    INTEGER,
    LIST,
    MOMENT,
    NAME,
    OBJECT,
    SPAN,
    TEXT,
    TIME,
    UUID,
    WORDS,
    Schema,
    listing,
    mapping,
    optional,
    record,
    word,
)
from processes.filters import ATTRIBUTES_MOST, TEXTS, TIMES
from processes.fingerprint import FORM
from processes.outside import MOST
from processes.states import ProcessState, TaskState

PASS_KEY = UUID
EPOCH = {**INTEGER, "minimum": 0, "maximum": 2**31 - 1}
ID = {**INTEGER, "minimum": 1, "maximum": 2**63 - 1}
PRIORITY = {**INTEGER, "minimum": -32767, "maximum": 32767}
LINE = {**NAME, "maxLength": 500}
REMAINING = {"type": "number", "description": "Seconds until then, by the clock of the database."}

TASK = record(
    *("process_id", "task", "actor", "epoch", "pass_key", "attempt", "args", "kwargs"),
    *("until", "remaining", "custom_id", "idempotency_key"),
    process_id=ID,
    task=ID,
    actor=TEXT,
    epoch=EPOCH,
    pass_key=PASS_KEY,
    attempt=INTEGER,
    args=LIST,
    kwargs=OBJECT,
    until=MOMENT,
    remaining=REMAINING,
    custom_id=optional(TEXT),
    idempotency_key=TEXT,
)
POLL = record(limit={**INTEGER, "minimum": 1, "maximum": MOST}, wait=SPAN)
HEARTBEAT = record("pass_key", pass_key=PASS_KEY)
ERROR = record(type=TEXT, message=TEXT, traceback=optional(TEXT), final=FLAG)
RELEASE = {
    **record("pass_key", "epoch", pass_key=PASS_KEY, epoch=EPOCH, value=ANY, error=ERROR),
    "oneOf": [{"required": ["value"]}, {"required": ["error"]}],
}
RELEASED = record("outcome", "why", outcome=word("accepted", "again", "broken"), why=optional(TEXT))
REFUSED = record(
    *("outcome", "why", "error"),
    outcome=word("refused"),
    why=TEXT,
    error=record("code", "message", code=TEXT, message=TEXT),
)
START = record(
    "name",
    name=NAME,
    args=LIST,
    kwargs=OBJECT,
    custom_id=optional(LINE),
    idempotency_key=optional(LINE),
    attributes=optional(OBJECT),
    priority=PRIORITY,
)
STATE = word(*ProcessState)
OF_TASK: dict[str, Schema] = {
    "number": ID,
    "actor": TEXT,
    "state": word(*TaskState),
    "created_by": optional(INTEGER),
    "sources": listing(ID),
    "value_of": optional(INTEGER),
    "failed": FLAG,
    "attempts": INTEGER,
    "failures": INTEGER,
    "restarts": INTEGER,
    "worker": optional(TEXT),
    "error": optional(TEXT),
    "created_at": MOMENT,
    **{word: optional(MOMENT) for word in ("ready_at", "claimed_at", "until", "ended_at")},
}
OF_PROCESS: dict[str, Schema] = {
    "id": ID,
    "name": TEXT,
    "state": STATE,
    "error": optional(TEXT),
    "priority": INTEGER,
    "custom_id": optional(TEXT),
    "idempotency_key": optional(TEXT),
    "attributes": OBJECT,
    "registered_at": MOMENT,
    **{word: optional(MOMENT) for word in ("begun_at", "ended_at", "deadline_at")},
}
#: Of one page.
TASKS_MOST = 1_000
SHOWN = record(
    *OF_PROCESS,
    *("value", "tasks", "after"),
    **OF_PROCESS,
    value=ANY,
    tasks=listing(record(*OF_TASK, **OF_TASK), TASKS_MOST),
    after=optional(ID),
)
SHOW = record(after=ID, limit={**INTEGER, "minimum": 1, "maximum": TASKS_MOST})
FINGERPRINT = {**TEXT, "pattern": f"^{FORM.pattern}$", "description": "16 hexadecimal digits."}
#: Of one page.
FOUND_MOST = 200
SEARCH = record(
    states=listing(STATE, len(ProcessState)),
    name=NAME,
    actor=NAME,
    **{name: FINGERPRINT if name == "fingerprint" else WORDS for name in TEXTS},
    attributes=mapping(WORDS, ANY, ATTRIBUTES_MOST),
    **dict.fromkeys(TIMES, TIME),
    template=NAME,
    parameters=mapping(WORDS, WORDS, ATTRIBUTES_MOST),
    before_id=optional(ID),
    limit={**INTEGER, "minimum": 1, "maximum": FOUND_MOST},
)
OF_FOUND: dict[str, Schema] = {
    **{name: OF_PROCESS[name] for name in ("id", "name", "state", "custom_id", "attributes", "error")},
    **{name: OF_PROCESS[name] for name in ("registered_at", "begun_at", "ended_at")},
    "unfinished": optional(INTEGER),
    "broken": optional(INTEGER),
}
FOUND = record("processes", "before_id", processes=listing(record(*OF_FOUND, **OF_FOUND)), before_id=optional(ID))
OF_TEMPLATE: dict[str, Schema] = {
    "name": TEXT,
    "parameters": listing(TEXT),
    "filters": OBJECT,
    "created_by": TEXT,
    "at": MOMENT,
}
TEMPLATES = record("templates", templates=listing(record(*OF_TEMPLATE, **OF_TEMPLATE)))
