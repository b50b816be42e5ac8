"""pgqueuer: a backlog of no-ops, a hundred taken at once, asyncpg, one process; drained until empty."""

import asyncio
import json
import os
import sys
import time

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.types import QueueExecutionMode

arguments = json.loads(sys.argv[1])


async def main() -> None:
    count = arguments["count"]
    connection = await asyncpg.connect(os.environ["BENCH_DATABASE_URL"])
    await connection.execute("drop schema if exists bench_pgqueuer cascade; create schema bench_pgqueuer")
    await connection.execute("set search_path to bench_pgqueuer")
    queuer = PgQueuer.from_asyncpg_connection(connection)
    await queuer.qm.queries.install()
    for _ in range(0, count, 1000):
        size = min(1000, count)
        await queuer.qm.queries.enqueue(["noop"] * size, [None] * size, [0] * size)
    # What autovacuum would have done to a queue of some age; without it the peer plans blindly.
    await connection.execute("analyze")
    times: list[float] = []

    @queuer.entrypoint("noop")
    async def noop(_: Job) -> None:
        times.append(time.perf_counter())

    await queuer.run(batch_size=arguments["batch"], mode=QueueExecutionMode.drain)
    ended = time.perf_counter()
    assert len(times) == count
    assert await connection.fetchval("select count(*) from pgqueuer") == 0
    print(json.dumps({"rate": count / (ended - times[0])}))


asyncio.run(main())
