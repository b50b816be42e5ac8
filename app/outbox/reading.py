"""Events as messages, read in batches whose cost follows the batch (S14).

A batch ends after so many events, so many bytes or so many ids that were passed over, whichever comes first. The
message is put together by Postgres: the JSON of an entity goes through here as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from app.arrays import Array
from app.db import autocommit
from app.outbox.cursor import State, as_snapshot, visible
from app.outbox.model import EVENT, Event
from app.stream import new_in

#: Messages of one batch may take so many bytes together; a single one may take more.
BYTES = 8 * 1024 * 1024
#: A larger entity is not put into its message: RabbitMQ 4 refuses what is larger than this, as it is delivered.
LARGEST = 15 * 1024 * 1024
#: So many ids are looked at for one batch: between two new events there may be many that were published long ago.
IDS = 20_000


class Message(NamedTuple):
    id: int
    kind: str
    entity_id: str
    stage: str
    body: str

    @property
    def routing_key(self) -> str:
        return f"{self.kind}.{self.stage}"


@dataclass(frozen=True)
class Batch:
    """`upto`: all that was looked for up to this id is in it."""

    messages: Sequence[Message]
    upto: int


def new(state: State, limit: int) -> list[int]:
    """Ids of what was new when the state was read, at most `limit` and one. What was saved since then may be for
    subscriptions that the state does not know."""
    with autocommit() as connection:
        found = connection.execute(_new(limit + 1), {"p_snapshot": state.snapshot, "p_target": state.now}).scalars()
        return sorted(found)


def these(ids: Sequence[int]) -> Batch:
    # Few statements for all numbers of ids: each is kept, with what it was compiled to.
    limit = 1 << (len(ids) - 1).bit_length()
    return _batch(_these(limit), {"p_ids": list(ids)}, limit, ids[-1])


def targeted(state: State, limit: int) -> Batch:
    """The next ones that are visible in the target and were not in the snapshot."""
    upto = _upto(state.done_id, state.last_id or 0)
    values = {"p_snapshot": state.snapshot, "p_target": state.target, "p_after": state.done_id, "p_upto": upto}
    return _batch(_targeted(limit), values, limit, upto)


def replayed(state: State, limit: int) -> Batch:
    """The next ones of what is published once more: nothing that was not published before."""
    after = (state.replay_from or 1) - 1
    upto = max(after, _upto(after, state.replay_to or 0))
    values = {"p_snapshot": state.snapshot, "p_target": state.target, "p_after": after, "p_upto": upto}
    return _batch(_replayed(limit), values | {"p_done": state.done_id}, limit, upto)


def _upto(after: int, last: int) -> int:
    """Counted from the next one that there is: after a restore there is a gap that nobody would come through."""
    following = sa.select(Event.id).where(Event.id > after).order_by(Event.id).limit(sa.literal_column("1"))
    with autocommit() as connection:
        first = connection.execute(following).scalar()
    return last if first is None else min(first + IDS - 1, last)


def _batch(statement: Any, values: dict[str, Any], limit: int, upto: int) -> Batch:
    with autocommit() as connection:
        rows = connection.execute(statement, values).all()
    messages = [Message(*row[:-1]) for row in rows]
    found = rows[0][-1] if rows else 0
    # Where it was cut, by number or by size, what comes after the last one was not looked at.
    whole = len(rows) == found < limit
    return Batch(messages, upto if whole else messages[-1].id)


@cache
def _new(limit: int) -> Any:
    known = visible(as_snapshot("p_target"))
    ids = [each.where(known) for each in new_in(as_snapshot("p_snapshot"), Event, Event.id)]
    return sa.union_all(*ids).limit(sa.literal_column(str(limit)))


@cache
def _these(limit: int) -> Any:
    return _messages(Event.id == sa.any_(sa.bindparam("p_ids", type_=Array(sa.BigInteger))), limit)


@cache
def _targeted(limit: int) -> Any:
    is_new = sa.and_(~visible(as_snapshot("p_snapshot")), visible(as_snapshot("p_target")))
    return _messages(sa.and_(_between(), is_new), limit)


@cache
def _replayed(limit: int) -> Any:
    of_target = sa.and_(Event.id <= sa.bindparam("p_done", type_=sa.BigInteger), visible(as_snapshot("p_target")))
    return _messages(sa.and_(_between(), sa.or_(visible(as_snapshot("p_snapshot")), of_target)), limit)


def _between() -> sa.ColumnElement[bool]:
    after, upto = (sa.bindparam(name, type_=sa.BigInteger) for name in ("p_after", "p_upto"))
    return sa.and_(Event.id > after, Event.id <= upto)


def _messages(condition: sa.ColumnElement[bool], limit: int) -> Any:
    """In the order of ids, as many as there is room for; with each, how many were found."""
    size = sa.func.octet_length(sa.cast(Event.entity, sa.Text)) + sa.func.coalesce(
        sa.func.octet_length(Event.state_value), 0
    )
    found = (
        sa.select(EVENT, size.label("size"))
        .where(condition)
        .order_by(Event.id)
        # A literal: the planner must know that these are few.
        .limit(sa.literal_column(str(limit)))
        .subquery("found")
    )
    before = sa.func.sum(found.c.size).over(order_by=found.c.id) - found.c.size
    summed = sa.select(found, before.label("before"), sa.func.count().over().label("of")).subquery("summed")
    each = summed.c
    room = sa.select(each.id, each.kind, each.entity_id, each.stage, _body(each), each.of)
    return room.where(each.before < BYTES).order_by(each.id)


def _body(each: Any) -> sa.ColumnElement[str]:
    """See docs/reference/events.md for what it says. Where the entity is too large, neither it nor the state is in."""
    fits = each.size <= LARGEST
    text = sa.func.replace(sa.func.encode(each.state_value, "base64"), "\n", "")
    state = sa.func.json_build_object("type_url", each.state_type, "value", text, "version", each.state_version)
    moment = sa.func.to_char(sa.func.timezone("UTC", each.saved_at), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
    words: dict[str, Any] = {
        "sequence": each.id,
        "kind": each.kind,
        "id": each.entity_id,
        "stage": each.stage,
        "version": each.version,
        "fields": each.fields,
        "entity": sa.case((fits, each.entity)),
        "state": sa.case((sa.and_(fits, each.state_type.is_not(None)), state)),
        "saved_at": moment,
    }
    parts: list[Any] = []
    for word, value in words.items():
        parts += [sa.literal_column(f"'{word}'"), value]
    return sa.cast(sa.func.json_build_object(*parts), sa.Text)
