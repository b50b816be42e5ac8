"""The hand-written prototype: makes the entities, then dispatches what waits to a worker that is up: a message for each
hundred ids. The clock runs from just before the commit that makes them wait until the queue is empty."""

import json
import os
import sys
import time
from pathlib import Path

import psycopg2
from prototype_app import app, visit
from psycopg2.extensions import cursor as Cursor  # noqa: N812 - a class with the name of a function

arguments = json.loads(sys.argv[1])
BATCH, PAGE = 100, 10_000
_WAITING = """
select due_at, entity_id from bench_visits.entry
where queue = 'count' and pass_key is null and due_at <= now() and (due_at, entity_id) > (%s, %s)
order by due_at, entity_id limit %s
"""


def work_off(cursor: Cursor) -> float:
    begun = time.time()
    cursor.execute("call bench_visits.offer()")
    last = ("-infinity", "")
    with app.producer_or_acquire() as producer:
        while True:
            cursor.execute(_WAITING, (*last, PAGE))
            found = cursor.fetchall()
            ids = [row[1] for row in found]
            for start in range(0, len(ids), BATCH):
                visit.apply_async((ids[start : start + BATCH],), producer=producer)
            if len(found) < PAGE:
                break
            last = found[-1]
    # The last id goes last: this finds it by one step in the index.
    while True:
        cursor.execute("select max(entity_id) from bench_visits.entry where queue = 'count'")
        row = cursor.fetchone()
        if row is None or row[0] is None:
            return time.time() - begun
        if time.time() - begun > 120:
            sys.exit("the queue did not get empty within 120 s")
        time.sleep(0.01)


connection = psycopg2.connect(os.environ["BENCH_DATABASE_URL"])
connection.autocommit = True
with connection.cursor() as cursor:
    cursor.execute(Path(__file__).with_name("visits.sql").read_text())
    cursor.execute("call fill(%s)", (arguments["count"],))
    cursor.execute("vacuum analyze")
    for _ in range(2):  # the first warms the worker up
        took = work_off(cursor)
        cursor.execute("vacuum analyze entity, state, entry")
    cursor.execute("select count(*) from entity where visits <> 2")
    assert cursor.fetchone() == (0,)
    cursor.execute("drop schema bench_visits cascade")
print(json.dumps({"rate": arguments["count"] / took}))
