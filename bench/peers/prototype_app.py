"""What one would write by hand for visits in batches: a Celery task that is given a hundred ids, and psycopg2.

It claims the ids that nobody has, with a lease; loads entities and states; calls the function; saves both where their
versions are the loaded ones, notes in an outbox what was saved, and finishes the entries of those. Statements are
prepared, one a step.
"""

import os
import uuid
from functools import cache

import psycopg2
from celery_app import app
from psycopg2.extensions import connection as Connection  # noqa: N812 - a class with the name of a function

PREPARE = """
set search_path = bench_visits;
prepare claim (text[], uuid) as
    with free as materialized (
        select entity_id from entry where queue = 'count' and entity_id = any ($1) and pass_key is null
        order by entity_id for update skip locked
    )
    update entry set pass_key = $2, lease_until = now() + interval '60 s', attempts = attempts + 1
    from free where entry.queue = 'count' and entry.entity_id = free.entity_id
    returning entry.entity_id;
prepare load (text[]) as
    select id, visits, writes, name, entity.version, value, state.version
    from entity left join state on entity_id = id and stage = 'count' where id = any ($1);
prepare save (text[], integer[], bigint[], bytea[], bigint[], uuid) as
    with given as (select * from unnest($1, $2, $3, $4, $5) given (id, visits, version, value, state_version)),
    saved as (
        update entity set visits = given.visits, version = entity.version + 1
        from given where entity.id = given.id and entity.version = given.version
        returning entity.id, entity.version, to_json(entity) as body
    ), told as (
        insert into outbox (entity_id, version, body, kept)
        select saved.id, saved.version, saved.body, given.value from saved join given on given.id = saved.id
    ), kept as (
        update state set value = given.value, version = state.version + 1
        from given where state.entity_id = given.id and stage = 'count' and state.version = given.state_version
        returning state.entity_id
    )
    delete from entry using saved where queue = 'count' and entry.entity_id = saved.id and pass_key = $6;
"""


@cache
def database() -> Connection:
    """Made in the child on its first call."""
    connection = psycopg2.connect(os.environ["BENCH_DATABASE_URL"])
    with connection, connection.cursor() as cursor:
        cursor.execute(PREPARE)
    return connection


def count(visits: int, value: bytes) -> tuple[int, bytes]:
    """The trivial function: what a stage would do."""
    return visits + 1, (int.from_bytes(value, "big") + 1).to_bytes(8, "big")


@app.task
def visit(ids: list[str]) -> None:
    connection, mine = database(), str(uuid.uuid4())
    with connection.cursor() as cursor:
        cursor.execute("execute claim (%s, %s)", (ids, mine))
        claimed = [row[0] for row in cursor]
        connection.commit()
        cursor.execute("execute load (%s)", (claimed,))
        changes = []
        for entity_id, visits, _writes, _name, version, value, state_version in cursor:
            changes.append((entity_id, *count(visits, bytes(value)), version, state_version))
        changes.sort()
        saved, counts, values, versions, state_versions = map(list, zip(*changes, strict=True))
        given = (saved, counts, versions, [psycopg2.Binary(value) for value in values], state_versions, mine)
        cursor.execute("execute save (%s, %s, %s, %s::bytea[], %s, %s)", given)
        if cursor.rowcount != len(claimed):
            connection.rollback()
            raise RuntimeError(f"only {cursor.rowcount} of {len(claimed)} visits were saved")
        connection.commit()
