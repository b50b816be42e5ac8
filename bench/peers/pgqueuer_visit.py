"""pgqueuer: a job for each entity, a hundred taken at once, asyncpg, one process; each makes a visit: loads entity and
state, and saves both where their versions are the loaded ones."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.types import QueueExecutionMode

arguments = json.loads(sys.argv[1])
URL = os.environ["BENCH_DATABASE_URL"]
_LOAD = """
select visits, writes, name, entity.version, value, state.version as state_version
from bench_visits.entity left join bench_visits.state on entity_id = id and stage = 'count' where id = $1
"""
_SAVE = """
with saved as (
    update bench_visits.entity set visits = $2, version = version + 1 where id = $1 and version = $3 returning id
)
update bench_visits.state set value = $4, version = version + 1
where entity_id = (select id from saved) and stage = 'count' and version = $5 returning entity_id
"""


async def main() -> None:
    count = arguments["count"]
    connection = await asyncpg.connect(URL)
    await connection.execute(Path(__file__).with_name("visits.sql").read_text())
    await connection.execute(f"call fill({count})")
    await connection.execute("drop schema if exists bench_pgqueuer cascade; create schema bench_pgqueuer")
    await connection.execute("set search_path to bench_pgqueuer")
    queuer = PgQueuer.from_asyncpg_connection(connection)
    await queuer.qm.queries.install()
    for first in range(1, count + 1, 1000):
        ids = [f"{number:08}".encode() for number in range(first, min(first + 1000, count + 1))]
        await queuer.qm.queries.enqueue(["visit"] * len(ids), ids, [0] * len(ids))
    # What autovacuum would have done to a queue of some age; without it the peer plans blindly.
    await connection.execute("vacuum analyze")
    times: list[float] = []
    pool = await asyncpg.create_pool(URL, min_size=arguments["connections"], max_size=arguments["connections"])

    @queuer.entrypoint("visit")
    async def visit(job: Job) -> None:
        times.append(time.perf_counter())
        assert job.payload is not None
        entity_id = job.payload.decode()
        async with pool.acquire() as own:
            row = await own.fetchrow(_LOAD, entity_id)
            value = (int.from_bytes(row["value"], "big") + 1).to_bytes(8, "big")
            saved = await own.fetchval(_SAVE, entity_id, row["visits"] + 1, row["version"], value, row["state_version"])
        assert saved == entity_id

    await queuer.run(batch_size=arguments["batch"], mode=QueueExecutionMode.drain)
    ended = time.perf_counter()
    await pool.close()
    assert len(times) == count
    assert await connection.fetchval("select count(*) from bench_visits.entity where visits <> 1") == 0
    await connection.execute("drop schema bench_visits cascade; drop schema bench_pgqueuer cascade")
    print(json.dumps({"rate": count / (ended - times[0])}))


asyncio.run(main())
