"""A program that makes watched entities and has them visited; run as a process of its own.

Arguments as JSON in, one line of JSON out.
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

import redis
import sqlalchemy as sa

from app.db import autocommit
from app.settings import settings
from bench import stamps
from bench.things import Count, Lone, Thing
from tidemill import Base, stages, transaction

_FILL = """
insert into bench_thing (id, visits, writes, name)
select to_char(n, 'FM00000000'), 0, 0, 'thing ' || n from generate_series(1, :count) n
"""
# What a visit has left before: nobody measures the very first one. The value is an Int64Value of one.
_STATES = r"""
insert into tidemill.stage_state (kind, entity_id, stage, type_url, value)
select 'bench_thing', id, 'count', 'type.googleapis.com/google.protobuf.Int64Value', '\x0801' from bench_thing
"""
# As the merge rule would have put them in, without its time.
_WAITING = """
insert into tidemill.stage_visit (kind, entity_id, stage, shard, queue, due_at)
select 'bench_thing', id, 'count', tidemill.shard(id), 'stage.bench_thing.count', now() from bench_thing
"""

_RUNNING = "select exists (select from tidemill.stage_visit where state = 'running')"


def make(count: int) -> dict[str, Any]:
    """So many entities with a state each, in no queue."""
    _fresh(count)
    _run(_STATES)
    _vacuum()
    return {}


def make_waiting(count: int) -> dict[str, Any]:
    """So many entities, all waiting to be visited for the first time. Their queue is paused first, if at all."""
    _fresh(count)
    _run(_WAITING)
    _vacuum()
    return {}


def _fresh(count: int) -> None:
    tables = [Base.metadata.tables[model.__tablename__] for model in (Thing, Lone)]
    with transaction() as session:
        Base.metadata.drop_all(session.connection(), tables)
        Base.metadata.create_all(session.connection(), tables)
        session.execute(sa.text("truncate tidemill.stage_visit, tidemill.stage_state, tidemill.entity_guard"))
        session.execute(sa.text(_FILL), {"count": count})
        stages.install(session, Thing, Lone)


def _run(statement: str) -> None:
    with transaction() as session:
        session.execute(sa.text(statement))


def _vacuum() -> None:
    with autocommit() as connection:
        connection.execute(sa.text("vacuum analyze"))


def drop() -> dict[str, Any]:
    _fresh(0)
    with transaction() as session:
        Base.metadata.drop_all(session.connection())
    return {}


def offer(count: int, wipe: bool = False) -> dict[str, Any]:  # noqa: FBT001 - its name is in the JSON
    """The first so many, in one transaction, so that they appear at once; says when, on this machine's clock. `wipe`:
    and once the first of them are being visited, the broker loses all that it has."""
    ids = [f"{number:08}" for number in range(1, count + 1)]
    with transaction() as session:
        for start in range(0, count, 10_000):
            stages.queue.offer_many(ids[start : start + 10_000], Count, session=session)
        committing = time.time()
    if wipe:
        _wait_for_a_visit()
        with redis.Redis.from_url(settings().resolved_broker_url()) as broker:
            broker.flushdb()
    time.sleep(0.2)  # the doorbell rings from a thread of this process, after the commit
    return {"committed": committing}


def _wait_for_a_visit() -> None:
    with autocommit() as connection:
        while not connection.execute(sa.text(_RUNNING)).scalar_one():
            time.sleep(0.001)


def write(count: int) -> dict[str, Any]:
    """Around the ORM: the database's trigger enqueues the system stage, and a scheduler finds what nobody rang for."""
    changed = sa.text("update bench_thing set writes = writes + 1 where id <= to_char(:count, 'FM00000000')")
    with transaction() as session:
        session.execute(changed, {"count": count})
        committing = time.time()
    return {"committed": committing}


def lone(samples: int, warm: int, pause: tuple[float, float]) -> dict[str, Any]:
    """From just before COMMIT of an insert to the first line of `process`, in milliseconds."""
    waited = []
    for number in range(-warm, samples):
        time.sleep(random.uniform(*pause))
        with transaction() as session:
            session.add(Lone(id=number))
            session.flush()
            committing = time.time_ns()
        arrived = stamps.began(number, "entity")
        if number >= 0:
            waited.append((arrived - committing) / 1e6)
    return {"waited": waited}


if __name__ == "__main__":
    each = (make, make_waiting, drop, offer, write, lone)
    what = {function.__name__: function for function in each}[sys.argv[1]]
    print(json.dumps(what(**json.loads(sys.argv[2]))))
